# SPDX-License-Identifier: Apache-2.0
"""Humming's own compile of the kernels of an NVFP4 layer, as vLLM has it at start: one NVRTC process for each kernel. Prints each
kernel's digest and the seconds. Without a GPU, an H200 is described to it, and nothing runs.

usage: compiles_with_humming.py   (HUMMING_CACHE_DIR=an empty folder)
"""

import contextlib
import hashlib
import json
import sys
import time
import types
from pathlib import Path

import torch

if not torch.cuda.is_available():
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.device = lambda _: contextlib.nullcontext()
    torch.version.cuda = "13.0"  # by which Humming finds CUDA
    import humming.device
    import humming.kernel.humming
    import humming.layer

    h200 = types.SimpleNamespace(
        index=0, name="NVIDIA H200", is_ppu=False, sm_count=132, max_threads_per_block=1024, max_threads_per_sm=2048,
        max_registers_per_sm=65536, sm_major=9, sm_minor=0, sm_version=90, l2_cache_size=60 << 20, l2_cache_size_mb=60.0,
        l1_cache_size=256 << 10, l1_cache_size_kb=256.0, default_smem_size=49152, max_smem_size=232448, max_smem_size_kb=227.0,
        memory_clock_khz=3201000, memory_bus_width=6144, sm_clock_khz=1980000, memory_bandwidth_gbps=4800.0,
        tensorcore_tops={})  # fmt: skip
    humming.device._get_device_info_extension = lambda: types.SimpleNamespace(_DeviceInfo=lambda _: h200)
    humming.device.DeviceInfo._get_value = lambda _: h200
    # These run or load kernels.
    humming.layer.transform_humming_tensors = lambda _, tensors, **__: tensors
    humming.kernel.humming.HummingKernel.register_kernel = lambda kernel: setattr(kernel, "kernel_id", 0)

from humming.kernel.humming import HummingKernel  # noqa: E402
from humming.layer import HummingLayer  # noqa: E402
from humming.tune import get_heuristics_config  # noqa: E402

ROWS = (1, 64, 1024)
begin = time.perf_counter()
with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
    layer = HummingLayer(shape_n=4096, shape_k=4096, weight_config={"quant_method": "modelopt", "quant_algo": "nvfp4"},
                         torch_dtype=torch.bfloat16)  # fmt: skip
for tensor in layer.state_dict().values():
    tensor.zero_()
layer.transform()
found = [get_heuristics_config(layer_config=layer.humming_config, shape_m=rows, gemm_type="dense") for rows in ROWS]
intervals = [[low, high, each] for low, high, each in zip([0, *ROWS[:-1]], [*ROWS[:-1], 1 << 30], found, strict=True)]
compute = json.dumps({"use_batch_invariant": False, "use_f16_accum": False, "gemm_type": "dense"})
HummingKernel.prepare_kernels(layer.humming_config.to_str(), compute, json.dumps(intervals), 0)
seconds = time.perf_counter() - begin
cubins = sorted({instance.kernel_filename for instance in HummingKernel._instances.values() if hasattr(instance, "kernel_filename")})
digests = sorted(hashlib.sha256(Path(cubin).read_bytes()).hexdigest() for cubin in cubins)
json.dump({"seconds": seconds, "kernels": digests}, sys.stdout)
