# SPDX-License-Identifier: Apache-2.0
"""The entry of the plugin for vLLM, `vllm.general_plugins`: kernels of `cukiln.torch` in vLLM.

    CUKILN_VLLM=1 vllm serve MODEL

Without `CUKILN_VLLM=1` it does nothing and imports neither vLLM nor PyTorch. vLLM has no public
interface for this: where a name or a signature differs from what is expected, or a layer is of a
kind that cukiln does not compute, vLLM's own kernel stays and one line of its log says why.
"""

from __future__ import annotations

import importlib
import logging
import os

_LOG = logging.getLogger("vllm.cukiln")  # which vLLM prints
_PARTS = {"linear": "linear layers", "experts": "mixtures of experts"}


def register() -> None:
    """vLLM calls it in each of its processes, and may do so more than once."""
    if os.environ.get("CUKILN_VLLM") != "1":
        return
    for part, what in _PARTS.items():
        try:
            importlib.import_module(f"cukiln.torch.vllm_{part}").install()
        except Exception as error:  # whatever differs in this vLLM, it serves without cukiln
            _LOG.warning("cukiln: vLLM's own kernels compute %s: %s", what, error)
