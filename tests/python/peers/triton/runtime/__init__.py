# SPDX-License-Identifier: Apache-2.0
"""The part of Triton that cukiln.adapters.triton meets, for tests without Triton."""
