# SPDX-License-Identifier: Apache-2.0
"""What the two parts of the plugin for vLLM share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from vllm import envs
from vllm.logger import init_logger
from vllm.platforms import current_platform

LOG = init_logger("vllm.cukiln")


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
