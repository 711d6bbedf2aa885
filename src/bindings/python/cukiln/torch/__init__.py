# SPDX-License-Identifier: Apache-2.0
"""The shipped kernels as PyTorch ops: `torch.ops.nvfp4.*`, on CPU and CUDA tensors.

Importing this registers them. Matrices are bfloat16 [rows, columns], rows contiguous; a quantised
matrix is data uint8 [rows, columns / 2], scales uint8 [rows to 128, columns / 16 to 4] as tensor
cores read them, and global_scale float32 [2], {encode, decode} = {2688 / amax, amax / 2688}, or
with another divisor than 2688.

    global_scale = nvfp4.amax_gsa(w)
    data, scales = nvfp4.quantize_nvfp4_from_buffer(w, global_scale)
    layer = cukiln.torch.LinearRunner(data, scales, global_scale)
    y = nvfp4.linear_gemm(x, layer.runner_id, layer.out_features)

On the CPU the same numbers come from exact emulation: for tests, slow. A bad argument is a
RuntimeError before anything runs, as with PyTorch's own ops; an unknown runner an IndexError. NaN
in an input makes its row NaN; a NaN in a matrix that gets a global scale of its own makes all of
it NaN. A token's expert that is out of range is skipped.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401  (loads libtorch, in which the ops are registered)
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "cukiln.torch needs PyTorch 2.11 or later: pip install 'cukiln[torch]'", name="torch"
    ) from error

from . import _native

_native.call("register")

from . import _autograd, _fakes  # noqa: E402, F401
from ._manifest import manifest_for  # noqa: E402
from ._runners import (  # noqa: E402
    LinearRunner,
    MoeRunner,
    Runner,
    get_runner,
    register_runner,
    unregister_runner,
    use_loader,
)
from .experts import NVFP4MoE, NVFP4SharedExpert  # noqa: E402
from ._report import QuantizeReport  # noqa: E402
from .layers import NVFP4Linear, process_weights_after_loading, quantize_  # noqa: E402
from .stacked import NVFP4Experts  # noqa: E402
from .training import NVFP4TrainableLinear  # noqa: E402

__all__ = [
    "LinearRunner",
    "MoeRunner",
    "NVFP4Experts",
    "NVFP4Linear",
    "NVFP4MoE",
    "NVFP4SharedExpert",
    "NVFP4TrainableLinear",
    "QuantizeReport",
    "Runner",
    "get_runner",
    "manifest_for",
    "process_weights_after_loading",
    "quantize_",
    "register_runner",
    "unregister_runner",
    "use_loader",
]
