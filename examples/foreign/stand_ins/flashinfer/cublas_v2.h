// SPDX-License-Identifier: Apache-2.0
// Empty: FlashInfer includes it and uses nothing of it in these kernels.
