# SPDX-License-Identifier: Apache-2.0
"""The shapes of GEMMs that cukiln.torch.tune measures by default. This file imports nothing, so that
scripts/model-sm100 can read it where there is no PyTorch."""

# Weights [n, k] of DeepSeek-V3, Llama 3 8B and 70B, Qwen3 32B, and squares.
WEIGHTS = (
    *((4096, 4096), (7168, 7168), (8192, 8192)),
    *((7168, 16384), (24576, 1536), (32768, 512), (36864, 7168), (7168, 18432), (18432, 7168)),
    *((4096, 7168), (7168, 2048)),
    *((6144, 4096), (28672, 4096), (4096, 14336)),
    *((10240, 8192), (57344, 8192), (8192, 28672)),
    *((10240, 5120), (5120, 8192), (51200, 5120), (5120, 25600)),
)
# Up to each of the first three, sm_90 has tiles of their own: no row serves both sides of one.
TOKENS = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096)
