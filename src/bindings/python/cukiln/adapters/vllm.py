# SPDX-License-Identifier: Apache-2.0
"""cukiln's NVFP4 kernels in vLLM: the plugin that the entry point `vllm.general_plugins` names.

    CUKILN_VLLM=1 vllm serve MODEL

Without `CUKILN_VLLM=1` it does nothing and imports neither vLLM nor PyTorch. With it, on devices of
compute capability 9.0, NVFP4 weights of ModelOpt's, compressed-tensors' and Quark's checkpoints are
multiplied by cukiln's kernels, activations in bf16; `--linear-backend` and `--moe-backend`,
`VLLM_DISABLED_KERNELS` and `VLLM_BATCH_INVARIANT` are obeyed, and `--linear-backend cukiln` asks for
cukiln by name. What cukiln takes over has no public interface in vLLM: where a name or a signature
differs from what is expected, or a layer is of a kind that it does not compute, vLLM's own kernel
stays and one line of its log says why.
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
            _LOG.warning("cukiln: vLLM's own kernels compute NVFP4 %s: %s", what, error)
