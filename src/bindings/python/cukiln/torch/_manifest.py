# SPDX-License-Identifier: Apache-2.0
"""The manifest of a model's kernels, for a start that compiles nothing."""

from __future__ import annotations

import copy
import json
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from ctypes import byref, c_char_p, c_size_t
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .. import _library, _shipped
from . import _native
from ._layer import Activations, check_activations

_ROWWISE = ("o_proj", "out_proj", "down_proj", "dense_4h_to_h", "w2")  # shards have a part of k
_TOPK = ("num_experts_per_tok", "top_k_experts", "experts_per_token", "moe_topk", "moe_k")
_SAMPLERS = {torch.bfloat16: "sampler_bf16", torch.float16: "sampler_f16"}


def manifest_for(
    config: Any,
    max_tokens: int,
    tp: int = 1,
    *,
    path: str | os.PathLike[str],
    arch: str | None = None,
    activations: Activations = None,
) -> list[str]:
    """Writes the manifest of the kernels that a model in NVFP4 launches for calls of 1 to
    `max_tokens` tokens, and returns the names of its modules. `cukiln preload PATH` then fills a
    store, without a GPU too, and this start compiles nothing:

        loader.preload(path)
        loader.seal()
        cukiln.torch.use_loader(loader)

    `config` is a configuration of transformers with a `quantization_config`, as an object, a dict,
    or a path to config.json or its folder. `tp`: among how many GPUs each layer is divided. `arch`
    is the GPUs', such as "sm_90a"; None: the current device's. `activations` is NVFP4Linear's; None:
    as the configuration says. The sampler of logits in float32 and in the model's dtype is
    included. The kernels' sources are written beside the file, to a folder with its name and
    `.sources`. Errors: ValueError.
    """
    if max_tokens < 1 or tp < 1:
        raise ValueError(f"max_tokens is {max_tokens} and tp {tp}; expected 1 or more of each")
    arch, capability = _target(arch)
    model_config, given = _read(config)
    w4a16 = _keeps_bf16(given, activations, capability)
    names = {"sampler", _SAMPLERS.get(_dtype(model_config), "sampler")}
    for linear, moe in _layers(model_config, given, max_tokens, tp, w4a16):
        found, count = (c_char_p * 64)(), c_size_t()
        _native.call("modules", linear, moe, capability, found, len(found), byref(count))
        names.update((found[i] or b"").decode() for i in range(count.value))
    return _write(Path(path), names, arch)


def _target(arch: str | None) -> tuple[str, int]:
    if arch is None:
        if not torch.cuda.is_available():
            raise ValueError(
                "arch is not given and PyTorch sees no GPU: name the GPUs that will run the model, "
                'as in arch="sm_90a"'
            )
        arch = "sm_{}{}a".format(*torch.cuda.get_device_capability())
    matched = re.fullmatch(r"sm_(\d+)[af]?", arch)
    if not matched or int(matched[1]) < 90:
        raise ValueError(f'arch is {arch!r}; expected "sm_90a" or a later one')
    return arch, int(matched[1])


def _read(config: Any) -> tuple[Any, Mapping[str, Any]]:
    """The configuration without its quantization, and that as words."""
    from transformers import AutoConfig, PreTrainedConfig

    if isinstance(config, (str, os.PathLike)):
        folder = Path(config)
        config = AutoConfig.from_pretrained(folder.parent if folder.is_file() else folder)
    elif isinstance(config, Mapping):
        config = AutoConfig.for_model(**config)
    elif not isinstance(config, PreTrainedConfig):
        raise ValueError(
            f"config is a {type(config).__name__}; expected a configuration of transformers, a dict, "
            "or a path to config.json"
        )
    config, given = copy.deepcopy(config), None
    for each in (config, config.get_text_config(decoder=True)):
        if hasattr(each, "quantization_config"):
            given = each.quantization_config
            del each.quantization_config
    if given is None:
        raise ValueError(
            "the configuration has no quantization_config; expected that of an NVFP4 checkpoint, or "
            "cukiln.torch.transformers.CukilnConfig()"
        )
    return config, given if isinstance(given, Mapping) else given.to_dict()


def _keeps_bf16(given: Mapping[str, Any], activations: Activations, capability: int) -> bool:
    """Whether its layers are W4A16, as CukilnConfig and NVFP4Linear decide."""
    from .transformers import CukilnConfig

    check_activations(activations)
    activations = activations or CukilnConfig(**given).activations
    groups = (given.get("config_groups") or {}).values()
    of_weights = groups and not any(group.get("input_activations") for group in groups)
    if activations is None and (of_weights or "W4A16" in str(given.get("quant_algo")).upper()):
        activations = "bf16"
    return capability == 90 if activations is None else activations == "bf16"


def _dtype(config: Any) -> torch.dtype:
    dtype = getattr(config.get_text_config(decoder=True), "dtype", None)
    return getattr(torch, dtype) if isinstance(dtype, str) else dtype or torch.bfloat16


def _layers(
    config: Any, given: Mapping[str, Any], max_tokens: int, tp: int, w4a16: bool
) -> Iterator[tuple[Any, Any]]:
    """What the model's runners are made with, one of each shape: a linear layer, or experts."""
    from transformers import AutoModelForCausalLM

    from .stacked import PROJECTIONS, is_stacked, unsupported_reason
    from .transformers import CukilnConfig, CukilnQuantizer

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    left = given.get("modules_to_not_convert")
    wanted = CukilnQuantizer(CukilnConfig(modules_to_not_convert=left))._wanted(model)
    shapes = set()
    for path, module in model.named_modules():
        if type(module) is nn.Linear and wanted(path, module):
            sizes = [module.out_features, module.in_features]
            part = path.rpartition(".")[2] in _ROWWISE
            if sizes[part] % tp == 0:  # one that does not divide is whole on each GPU
                sizes[part] //= tp
            shapes.add((*sizes, 0))
        elif is_stacked(module) and unsupported_reason(module) is None and wanted(path, module):
            up, down = (getattr(module, name).shape for name in PROJECTIONS)
            hidden, width = (up[1], down[1]) if module.is_transposed else (up[2], down[2])
            if width % tp:
                raise ValueError(f"tp is {tp}; expected a number that divides {path}'s {width} columns")
            shapes.add((hidden, width // tp, up[0]))
    if not shapes:
        raise ValueError(f"{type(model).__name__} has no layer that is quantised to NVFP4")
    for first, second, experts in sorted(shapes):
        tokens: dict[str, int] = {"max_tokens": max_tokens}
        if experts:
            tokens |= {"max_topk": _topk(config), "dynamic_activations": not w4a16}
            yield None, byref(_native.Moe(experts=experts, hidden=first, width=second, **tokens))
        else:
            linear = _native.Linear(out_features=first, in_features=second, w4a16=w4a16, **tokens)
            yield byref(linear), None


def _topk(config: Any) -> int:
    text = config.get_text_config(decoder=True)
    for name in _TOPK:
        if isinstance(value := getattr(text, name, None), int):
            return value
    raise ValueError(f"the configuration has experts and none of {', '.join(_TOPK)}")


def _text(file: str) -> bytes | None:
    text: bytes | None = _shipped.library().cukiln_nvfp4_source(_library.encoded(file), None)
    return text


def _write(path: Path, names: set[str], arch: str) -> list[str]:
    folder = path.parent / f"{path.stem}.sources"
    shipped = json.loads(_text("shipped.json") or b"")
    modules = [each for each in shipped["modules"] if each["name"] in names]
    for module in modules:
        files = [source.partition("kernels_src/")[2] for source in module["sources"]]
        for file in files:
            _write_with_headers(folder, file, set())
        module |= {"sources": [f"{folder.name}/kernels_src/{file}" for file in files], "targets": [arch]}
    path.write_text(json.dumps({"format": 1, "modules": modules}, indent=1) + "\n")
    return [module["name"] for module in modules]


def _write_with_headers(folder: Path, file: str, written: set[str]) -> None:
    text = None if file in written else _text(file)
    if text is None:
        return
    written.add(file)
    place = folder / "kernels_src" / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text)
    for name in re.findall(rb'#include "([^"]+)"', text):
        beside = posixpath.join(posixpath.dirname(file), name.decode())
        _write_with_headers(folder, posixpath.normpath(beside), written)
