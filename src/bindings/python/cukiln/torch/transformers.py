# SPDX-License-Identifier: Apache-2.0
"""NVFP4 models of transformers 5: quantised on load, saved, and loaded from NVFP4 checkpoints.

    from transformers import AutoModelForCausalLM
    from cukiln.torch.transformers import CukilnConfig, checkpoint_config

    model = AutoModelForCausalLM.from_pretrained(path, quantization_config=CukilnConfig())
    model.save_pretrained(saved)
    model = AutoModelForCausalLM.from_pretrained(saved)
    model = AutoModelForCausalLM.from_pretrained(other, config=checkpoint_config(other))

`other` is a checkpoint in safetensors by ModelOpt, compressed-tensors (llm-compressor) or this
module, or gpt-oss' own in MXFP4. Importing this module registers `cukiln`, and `modelopt` where
transformers has no such method, with transformers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

from safetensors import safe_open
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
from transformers.quantizers.quantizers_utils import should_convert_module
from transformers.utils.quantization_config import QuantizationConfigMixin

from ._checkpoints import AsModelOpt, refuse_smoothing
from ._layer import Activations, check_activations
from ._linear import is_conv1d
from ._report import shortened
from ._sources import reader_of_weight
from .experts import NVFP4MoE
from .layers import NVFP4Linear, quantize_
from .stacked import PROJECTIONS, NVFP4Experts, is_stacked, unsupported_reason

_KINDS = {"weight", "weight_scale", "weight_scale_2", "input_scale", "bias"}
_INPUT_SCALES = ("input_scale", "input_global_scale")
_HIDDEN = "_of_cukiln"  # at the end of names, no checkpoint has it
_SKIPPED = {"k_scale", "v_scale", "q_scale"}  # of a cache in FP8, which transformers does not have
_ROUTERS = {"gate", "router", "shared_expert_gate"}
_VISION = ("vision_tower", "vision_model")  # as vLLM reads ModelOpt's checkpoints
_QUANTISED = re.compile(
    r"(weight_packed|(weight|input)(_global)?_scale(_2|_inv)?|_blocks|_scales)$"
)
_NAMES = (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2"))


def _has_larger_inputs(config: Mapping[str, Any]) -> bool:
    """Whether a tool's configuration has inputs of more than 4 bits for any layer: by groups of
    layers, or by the name of an algorithm, of ModelOpt's the one such as W4A8_NVFP4_FP8."""
    groups = (config.get("config_groups") or {}).values()
    inputs = [group.get("input_activations") or {} for group in groups]
    by_layer = (config.get("quantized_layers") or {}).values()
    algorithms = [each.get("quant_algo") for each in (config, *by_layer)]
    return any(each.get("num_bits", 4) > 4 for each in inputs) or any(
        str(algorithm).upper().startswith("W4A8") for algorithm in algorithms
    )


@register_quantization_config("cukiln")
class CukilnConfig(QuantizationConfigMixin):
    """`modules_to_not_convert`: what stays as it is, in the patterns of transformers: beginnings of
    names, as regular expressions, or ends; without it, the output layer, what is tied to it,
    routers and vision towers. `activations`: NVFP4Linear's, of every layer. Without it a layer
    without scales of its inputs in a checkpoint, which has quantised weights alone, keeps
    activations in bf16, and so do all where a checkpoint's configuration, whose words this takes
    with its `quant_method`, has inputs of more than 4 bits.
    """

    def __init__(
        self,
        modules_to_not_convert: list[str] | None = None,
        activations: Activations = None,
        *,
        quant_method: str = "cukiln",
        **others: Any,
    ) -> None:
        if others and quant_method == "cukiln":
            raise TypeError(
                f"CukilnConfig has no {', '.join(others)}; expected modules_to_not_convert, for "
                "what others call ignore, and activations"
            )
        check_activations(activations)
        if activations is None and _has_larger_inputs(others):
            activations = "bf16"
        self.quant_method = "cukiln"
        self.modules_to_not_convert = modules_to_not_convert
        self.activations = activations


if "modelopt" not in AUTO_QUANTIZATION_CONFIG_MAPPING:
    register_quantization_config("modelopt")(CukilnConfig)


def checkpoint_config(
    path: str, *, activations: Activations = None, **options: Any
) -> PreTrainedConfig:
    """The configuration of an NVFP4 or MXFP4 checkpoint, whichever tool wrote it, for
    `from_pretrained(path, config=…)`. `activations` is CukilnConfig's, `options` are those of
    AutoConfig.from_pretrained."""
    config = AutoConfig.from_pretrained(path, **options)
    given: Any = None
    for each in (config, config.get_text_config(decoder=True)):
        if hasattr(each, "quantization_config"):
            given = each.quantization_config
            del each.quantization_config
    if activations is None and isinstance(given, Mapping) and _has_larger_inputs(given):
        activations = "bf16"
    config.quantization_config = CukilnConfig(activations=activations).to_dict()
    return config


@register_quantizer("cukiln")
class CukilnQuantizer(HfQuantizer):
    requires_calibration = False

    def validate_environment(self, device_map: Any = None, **_: Any) -> None:
        devices = set(device_map.values()) if isinstance(device_map, dict) else {device_map}
        if "disk" in devices:
            raise ValueError("device_map has 'disk'; NVFP4 layers are on a GPU, or on the CPU")
        if not self.pre_quantized and (len(devices) > 1 or devices & {"auto", "balanced"}):
            raise ValueError(
                f"device_map is {device_map!r}; a model is quantised on one device: load it with "
                "device_map='cpu' or 'cuda', save it, and load what was saved with this device_map"
            )

    def _process_model_before_weight_loading(
        self, model: PreTrainedModel, checkpoint_files: list[str] | None = None, **_: Any
    ) -> None:
        """Empty layers for what is quantised in the checkpoint."""
        if not self.pre_quantized:
            wanted = self._wanted(model)
            for path, module in model.named_modules():
                if type(module) is nn.Linear and wanted(path, module):
                    _require_no_reader(model, path)
            return
        if not checkpoint_files or not all(
            str(f).endswith(".safetensors") for f in checkpoint_files
        ):
            raise ValueError(f"the checkpoint is {checkpoint_files}; expected safetensors")
        self._found = _find(model, checkpoint_files)
        self._layers: dict[str, NVFP4Linear | NVFP4Experts] = {}
        known, paths = set(model.state_dict()), []
        for path, tensors in self._found.items():
            module = model.get_submodule(path)
            made = _empty_layer(path, module, tensors, self.quantization_config.activations)
            if made is None:
                prefix, ignored = path and path + ".", model._keys_to_ignore_on_load_unexpected
                left = {name for name in tensors if prefix + name not in known}
                if not path and model.base_model is model:  # but for a head's
                    base = f"{model.base_model_prefix}."
                    left = {
                        n for n in left if n.startswith(base) or n.split(".")[0] in model._modules
                    }
                expected = {name for name in left if _matches(ignored, prefix + name)}
                _require_takers(path, module, left - expected)
                continue
            if isinstance(made, NVFP4Linear):
                _require_no_reader(model, path)
            _hide_buffers(made, module)
            model.set_submodule(path, made)
            self._layers[path] = made
            paths.append(re.escape(path.removeprefix(f"{model.base_model_prefix}.")))
        if not self._layers:
            raise ValueError(
                f"the checkpoint has no layer in NVFP4 or MXFP4, in {len(checkpoint_files)} files: "
                "for one in bfloat16 use quantization_config=CukilnConfig()"
            )
        # They are read after the rest, by _process_model_after_weight_loading.
        for kind, pattern in (
            ("unexpected", rf"(^|\.)({'|'.join(paths)})\."),
            ("missing", f"{_HIDDEN}$"),
        ):
            name = f"_keys_to_ignore_on_load_{kind}"
            setattr(model, name, {*(getattr(model, name) or ()), pattern})

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **_: Any) -> None:
        _require_weights(model)
        if not self.pre_quantized:
            wanted = self._wanted(model)
            report = quantize_(model, wanted, activations=self.quantization_config.activations)
            if not report.replaced:
                self.remove_quantization_config(model)  # what is saved is no NVFP4 checkpoint
            _keep_layers_apart(model, report.replaced)
            return
        with ExitStack() as files:
            for path, layer in self._layers.items():
                if any(buffer.is_meta for buffer in layer.buffers()):
                    raise ValueError(f"{path} is on no device; NVFP4 layers are not offloaded")
                _show_buffers(layer)
                tensors = _Read(self._found[path], files)
                try:
                    _fill(layer, tensors)
                except (KeyError, RuntimeError, ValueError) as error:
                    raise ValueError(f"{path}: {error}") from error
                if isinstance(layer, NVFP4Experts):
                    _require_takers(path, layer, tensors.keys() - tensors.taken)
        _keep_layers_apart(model, self._layers)
        del self._found, self._layers

    def _wanted(self, model: PreTrainedModel) -> Any:
        given = self.quantization_config.modules_to_not_convert
        left = self.get_modules_to_not_convert(model, given, model._keep_in_fp32_modules)

        def wanted(name: str, module: nn.Module) -> bool:
            if given is None and (_is_router(model, name) or any(n in name for n in _VISION)):
                return False
            # A checkpoint's Conv1D stays too: _empty_layer has no layer for it.
            return not is_conv1d(module) and should_convert_module(name, left)

        return wanted

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False

    @property
    def is_compileable(self) -> bool:
        return True


def _keep_layers_apart(model: PreTrainedModel, paths: Iterable[str]) -> None:
    """Of the conversions that saving reverts, none that would join the data of several layers."""
    weights = [f"{path}.weight" for path in paths]
    model._weight_conversions = [
        entry
        for entry in getattr(model, "_weight_conversions", None) or ()
        if not isinstance(entry, WeightConverter)
        or not any(
            re.search(pattern, weight)
            for pattern in entry.reverse_transform().source_patterns
            for weight in weights
        )
    ]


class _Read(Mapping[str, Tensor]):
    """One layer's tensors, read from their files when they are asked for."""

    def __init__(self, places: dict[str, tuple[str, str]], files: ExitStack) -> None:
        self._places, self._files = places, files
        self._open: dict[str, Any] = {}
        self.taken: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> Tensor:
        file, key = self._places[name]
        self.taken.add(name)
        if file not in self._open:
            self._open[file] = self._files.enter_context(safe_open(file, framework="pt"))
        return self._open[file].get_tensor(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _find(
    model: PreTrainedModel, checkpoint_files: list[str]
) -> dict[str, dict[str, tuple[str, str]]]:
    """For each module the tensors below it, by what follows its name: file, and key there. What is
    of no module is the model's, \"\"."""
    renamings = [r for r in get_model_conversion_mapping(model) if isinstance(r, WeightRenaming)]
    modules = {name for name, module in model.named_modules() if name and not _is_listed(module)}
    prefix = f"{model.base_model_prefix}."
    found: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for file in checkpoint_files:
        with safe_open(file, framework="pt") as opened:
            keys = list(opened.keys())
        for key in keys:
            name, _ = rename_source_key(key, renamings, [])
            for candidate in (name, name.removeprefix(prefix), prefix + name):
                path = _owner(candidate, modules)
                if path is not None:
                    found[path][candidate[len(path) + 1 :]] = (str(file), key)
                    break
            else:
                found[""][name] = (str(file), key)
    return found


def _is_listed(module: nn.Module) -> bool:
    return isinstance(module, (nn.ModuleList, nn.ModuleDict))


def _owner(key: str, modules: set[str]) -> str | None:
    """The longest name of a module that the key begins with."""
    path = key.rpartition(".")[0]
    while path and path not in modules:
        path = path.rpartition(".")[0]
    return path or None


def _is_router(model: nn.Module, path: str) -> bool:
    """Whether a layer is one, or a part of one, by the names in its path; or has a number for each
    of the experts beside it."""
    parts = path.split(".")
    if not _ROUTERS.isdisjoint(parts):
        return True
    features = getattr(model.get_submodule(path), "out_features", None)
    if features is None:  # experts
        return False
    for depth in range(max(len(parts) - 2, 0), len(parts)):
        for name, module in model.get_submodule(".".join(parts[:depth])).named_children():
            if "expert" in name and name != parts[depth] and features == _count(module):
                return True
    return False


def _count(experts: nn.Module) -> int | None:
    if isinstance(experts, nn.ModuleList | nn.ModuleDict):
        return len(experts)
    return next((len(each) for each in experts.parameters() if each.dim() == 3), None)


def _matches(patterns: Iterable[str] | None, name: str) -> bool:
    return any(re.search(pattern, name) for pattern in patterns or ())


def _require_no_reader(model: PreTrainedModel, path: str) -> None:
    reader = reader_of_weight(model, path)
    if reader is not None:
        raise ValueError(
            f"{path} cannot be in NVFP4: {reader} computes with its weight itself, or casts to its "
            "dtype; a checkpoint in bfloat16 loads with its name in modules_to_not_convert"
        )


def _require_takers(path: str, module: nn.Module, left: Iterable[str]) -> None:
    """An error if any of the tensors below a module that nothing reads is quantised."""
    names = sorted(name for name in left if _QUANTISED.search(name))
    if names:
        raise ValueError(
            f"{path or 'the model'}, a {type(module).__name__}, is quantised in the checkpoint in "
            f"{_format(names)}, and cukiln has no layer that takes {shortened(names)}"
        )


def _format(names: list[str]) -> str:
    if any(name.endswith(("weight_packed", "_global_scale")) for name in names):
        return "compressed-tensors' NVFP4"
    if any(name.endswith("_proj_weight_scale") for name in names):
        return "ModelOpt's form of stacked experts"
    if any(name.endswith("weight_scale_2") for name in names):
        return "ModelOpt's NVFP4"
    return "MXFP4" if any(name.endswith("_blocks") for name in names) else "another format"


def _require_weights(model: PreTrainedModel) -> None:
    """An error if a matrix is as transformers initialises what a checkpoint lacks: at random."""
    missing = [
        name
        for name, parameter in model.named_parameters()
        if parameter.dim() >= 2
        and not parameter.is_meta  # offloaded
        and not getattr(parameter, "_is_hf_initialized", False)
        and not _matches(model._keys_to_ignore_on_load_missing, name)
    ]
    if missing:
        raise ValueError(
            f"the checkpoint has no weights for {shortened(missing)}: they would be random numbers"
        )


def _hide_buffers(layer: NVFP4Linear | NVFP4Experts, replaced: nn.Module) -> None:
    """So that transformers allocates a layer's buffers, and reads nothing into them: a checkpoint's
    tensors may have other shapes under the same names. Models initialise some parameters by their
    names; they find the ones of the module that was there, on meta."""
    layer._buffers = {name + _HIDDEN: buffer for name, buffer in layer._buffers.items()}
    for name, parameter in replaced._parameters.items():
        if parameter is not None:
            parameter._is_hf_initialized = True
        layer.__dict__[name] = parameter


def _show_buffers(layer: NVFP4Linear | NVFP4Experts) -> None:
    layer._buffers = {n.removesuffix(_HIDDEN): buffer for n, buffer in layer._buffers.items()}
    for name in (*layer._buffers, *PROJECTIONS):
        layer.__dict__.pop(name, None)


def _empty_layer(
    path: str,
    module: nn.Module,
    tensors: dict[str, tuple[str, str]],
    activations: Activations,
) -> NVFP4Linear | NVFP4Experts | None:
    """None for a module that is as it was before quantisation."""
    if not any(name.endswith(_INPUT_SCALES) for name in tensors):
        activations = activations or "bf16"
    if type(module) is nn.Linear:
        if "weight_packed" not in tensors and "weight_scale_2" not in tensors:
            if any(name.startswith("weight_") for name in tensors):
                raise ValueError(
                    f"{path} has {', '.join(sorted(tensors))}: it is quantised in another format "
                    "than NVFP4"
                )
            return None
        unknown = set(AsModelOpt(dict.fromkeys(tensors))) - _KINDS - _SKIPPED
        refuse_smoothing({f"{path}.{name}": None for name in unknown}, path)
        if unknown:
            raise ValueError(
                f"{path} has {', '.join(sorted(unknown))}, which NVFP4 layers have not"
            )
        bias = module.bias is not None
        return NVFP4Linear(
            module.in_features, module.out_features, bias, device="meta", activations=activations
        )
    if not is_stacked(module) or not (
        any(name.endswith(("_blocks", "w13_weight")) for name in tensors)
        or any(name.endswith((".weight_packed", ".weight_scale_2")) for name in tensors)
    ):
        return None
    reason = unsupported_reason(module)
    if reason is not None:
        raise ValueError(f"{path} is quantised, and a {type(module).__name__}, {reason}")
    return NVFP4Experts.from_module(module.to("meta"), activations=activations)


def _fill(layer: NVFP4Linear | NVFP4Experts, tensors: Mapping[str, Tensor]) -> None:
    if isinstance(layer, NVFP4Linear):
        known = AsModelOpt(tensors)
        state = {name: known[name] for name in _KINDS if name in known}
        for name in ("weight_scale_2", "input_scale"):
            if name in state:
                state[name] = state[name].reshape(())
    elif "w13_weight" in tensors:
        state = dict(tensors)
    else:
        state = _experts(layer, tensors).state_dict()
    missing = [name for name in layer._unloaded() if name not in state]
    if missing:  # transformers allocated them, with anything in them
        raise ValueError(f"the checkpoint has no {', '.join(missing)}")
    layer.load_state_dict(state)


def _experts(layer: NVFP4Experts, tensors: Mapping[str, Tensor]) -> NVFP4MoE:
    """The experts of another tool's checkpoint, with rows in the layer's order."""
    settings: dict[str, Any] = {
        name: getattr(layer, name) for name in ("limit", "alpha", "beta", "activations")
    }
    if any(name.endswith("_blocks") for name in tensors):
        return NVFP4Experts.from_mxfp4(tensors, interleaved=layer.interleaved, **settings)
    names = next((n for n in _NAMES if f"0.{n[0]}.weight" in AsModelOpt(tensors)), None)
    if names is None:
        raise KeyError(
            f"of {len(tensors)} tensors of experts none is 0.gate_proj.weight, or 0.w1.weight"
        )
    prefixes = [f"{expert}." for expert in range(layer.experts)]
    made = NVFP4Experts.from_checkpoint(tensors, prefixes, names=names, **settings)
    if layer.interleaved:
        made.interleave()
    return made
