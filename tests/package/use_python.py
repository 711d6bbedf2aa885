# SPDX-License-Identifier: Apache-2.0
"""What a Python program knows of an installed wheel: nothing but `import cukiln`.

usage: use_python.py STORE [torch]
"""

import sys
from pathlib import Path

import cukiln

store, *rest = sys.argv[1:]
source = Path(__file__).with_name("add.cu")
if rest == ["torch"]:
    import torch

    module = cukiln.get_cuda_module("fused_amax_quantize", loader=cukiln.Loader(store=store))
    data, scales = module.quantize_nvfp4_from_buffer(
        torch.ones(128, 64, dtype=torch.bfloat16), torch.tensor([2688.0, 1 / 2688])
    )
    assert data.shape == (128, 32) and int(data[0, 0]) == 0x77, (data, scales)
    try:
        module.quantize_nvfp4_from_buffer(torch.ones(3, 7), torch.ones(2))
    except (RuntimeError, ValueError) as error:  # it has come through libtorch
        print(error)
    else:
        raise AssertionError("float32 was taken")
else:
    assert "torch" not in sys.modules
    with cukiln.Loader(store=store) as loader:
        spec = cukiln.ModuleSpec(source, targets=["sm_100a"])
        first, again = loader.compile(spec)[0], loader.compile(spec)[0]
    assert (first.outcome, again.outcome) == ("compiled", "hit"), (first, again)
    print(f"compiled {[kernel.name for kernel in first.kernels]}")
