# SPDX-License-Identifier: Apache-2.0
"""What the two parts of the plugin for vLLM share.

On devices of compute capability 9.0, NVFP4 weights of ModelOpt's, compressed-tensors' and Quark's
checkpoints are multiplied by cukiln's kernels, with activations in bf16. vLLM's `--linear-backend`,
`--moe-backend`, `VLLM_DISABLED_KERNELS` and `VLLM_BATCH_INVARIANT` are obeyed; `--linear-backend
cukiln` is one more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from vllm import envs
from vllm.logger import init_logger
from vllm.platforms import current_platform

from .. import __version__

LOG = init_logger("vllm.cukiln")
SCALED: list[bool] = []  # of each linear layer, whether its graph multiplies by scales of its parts


def count_in_compile_keys() -> None:
    """vLLM keeps compiled graphs by what it knows: versions, configuration and its own variables.
    Those with cukiln's kernels, and with scales of parts, which weights decide, are others."""
    envs.environment_variables["CUKILN_VLLM"] = lambda: " ".join(
        (__version__, *(f"{int(each)}" for each in SCALED))
    )


def require_parameters(function: Callable[..., Any], *expected: str) -> None:
    given = tuple(inspect.signature(function).parameters)
    if given != expected:
        raise TypeError(
            f"{function.__qualname__} takes ({', '.join(given)}); expected ({', '.join(expected)})"
        )


def reason_unsupported(name: str) -> str | None:
    """Why this device, or the user, does not have the class of that name; None if they do."""
    if name in envs.VLLM_DISABLED_KERNELS:
        return f"VLLM_DISABLED_KERNELS has {name}"
    capability = current_platform.get_device_capability() if current_platform.is_cuda() else None
    if capability is None or tuple(capability) != (9, 0):
        return "cukiln's NVFP4 kernels serve compute capability 9.0, and this device has another"
    return None
