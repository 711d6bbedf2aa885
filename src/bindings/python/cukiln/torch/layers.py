# SPDX-License-Identifier: Apache-2.0
"""Layers with NVFP4 weights, in place of nn.Linear, mixtures of experts and shared experts.

A layer takes any leading batch shape and any floating dtype (it works in bfloat16), and is one node
of a graph. Its weights are those of a runner, `runner_id`. It moves with `.to(device)`, and keeps
its dtypes. Copies, pickles and state dicts work: a state dict holds what a ModelOpt checkpoint
holds, under its names, so that either loads the other's. A layer that goes to meta is empty again.
An empty layer has NaN for scales and 0 for packed data; a call before all was loaded is an error.

A layer may be called on several streams concurrently, and captured in graphs. A graph or an exported
program has the runner's number in it, and a fingerprint of the weights that it had at its creation:
keep the layer, on its device, as long as the graph. A program in another process needs the same
layers, made in the same order; where others have the numbers, it is an error.

Weights may be written in place. Replaced buffers (`layer.weight = …`, `.data = …`, functional_call)
and global scales that were written, but not through `.data`, are an error of the next call outside
of graphs; setting an attribute that the runner has from its layer, such as a limit, is an error.
`to_empty` makes a layer empty again. The result has the dtype that nn.Linear's would have, in
regions of autocast too. Nothing here has a gradient: a backward through it is an error, of which
PyTorch in a compiled graph only warns, and a derivative in forward mode is one. `torch.vmap` has no rule for the ops: it calls them once for
each element, and warns. Training is `cukiln.torch.training`.

Without `input_scale` one scale holds for all tokens of a call, so that a token's result depends on
its batch; with it, kernels for another number of tokens may still round differently.
`batch_invariant` is for results that do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from ._layer import Activations, Layer, as_rows, check_weight, largest, like, one_scale
from ._linear import as_linear, is_linear
from ._report import QuantizeReport, reason_changed, reason_left
from ._runners import LinearRunner, Runner
from ._weights import BLOCK, E4M3, K_MULTIPLE, N_MULTIPLE, blank, make_global_scale, quantize, up
from .experts import NVFP4MoE
from .stacked import NVFP4Experts, is_stacked, unsupported_reason


_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


class NVFP4Linear(Layer):
    """y = x · weightᵀ + bias.

    Empty, in the form of a checkpoint, until weights are loaded: `weight` uint8
    [out, in / 2], `weight_scale` float8_e4m3fn [out, in / 16], `weight_scale_2` and `input_scale`
    float32 decode scales. `activations` is "bf16", where inputs are not quantised (W4A16); "nvfp4",
    where they are, by `input_scale`, or if that is 0 by the amax of each; or None: bf16 on devices
    of compute capability 9.0, where it costs less and rounds less, else nvfp4.
    """

    matrices = (("weight", "weight_scale"),)
    decodes = ("weight_scale_2",)
    optional = ("input_scale",)
    copied = ("weight_scale_2",)

    weight: Tensor
    weight_scale: Tensor
    weight_scale_2: Tensor
    input_scale: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = False,
        device: torch.device | str | None = None,
        *,
        activations: Activations = None,
    ) -> None:
        super().__init__(activations)
        if in_features <= 0 or out_features <= 0:
            raise ValueError(
                f"in_features is {in_features} and out_features {out_features}; expected positive "
                "numbers"
            )
        self.in_features, self.out_features = in_features, out_features
        rows, columns = self.shape("weight")
        for name, value in (
            ("weight", blank((rows, columns // 2), torch.uint8, device)),
            ("weight_scale", blank((rows, columns // BLOCK), E4M3, device)),
            ("weight_scale_2", blank((), torch.float32, device)),
            ("input_scale", torch.zeros((), dtype=torch.float32, device=device)),
            ("bias", blank((rows,), torch.bfloat16, device) if bias else None),
        ):
            self.register_buffer(name, value)

    @classmethod
    def from_linear(
        cls,
        linear: nn.Linear,
        *,
        input_scale: float | Tensor | None = None,
        activations: Activations = None,
    ) -> NVFP4Linear:
        """Quantises the weight with a scale of its own. `input_scale`: decode, amax / 2688 of what
        calibration saw. Of a linear on meta it is an empty layer there, for
        load_state_dict(…, assign=True)."""
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"a {type(linear).__name__} is given; expected an nn.Linear")
        check_weight("weight", linear.weight, linear.out_features, linear.in_features)
        layer = cls(
            linear.in_features,
            linear.out_features,
            linear.bias is not None,
            "meta",
            activations=activations,
        )
        if linear.weight.is_meta:
            return layer.train(linear.training)
        layer.weight, layer.weight_scale, global_scale = quantize(linear.weight)
        layer.weight_scale_2 = global_scale[1].clone()
        layer._take(linear.bias, input_scale)
        layer.bind()
        return layer.train(linear.training)

    @classmethod
    def from_checkpoint(
        cls,
        weight: Tensor,
        weight_scale: Tensor,
        weight_scale_2: Tensor,
        input_scale: float | Tensor | None = None,
        bias: Tensor | None = None,
        activations: Activations = None,
    ) -> NVFP4Linear:
        """Of the tensors of one linear layer in a ModelOpt checkpoint, on the weight's device."""
        if weight.dim() != 2:
            raise ValueError(f"weight is {tuple(weight.shape)}; expected [out, in / 2]")
        rows, half = weight.shape
        layer = cls(2 * half, rows, bias is not None, "meta", activations=activations)
        layer.weight, layer.weight_scale = weight.detach(), weight_scale.detach()
        layer.weight_scale_2 = one_scale(weight_scale_2).to(weight.device)
        layer._take(bias, input_scale)
        layer.process_weights_after_loading()
        return layer

    def _take(self, bias: Tensor | None, input_scale: float | Tensor | None) -> None:
        self.input_scale = largest(input_scale).to(self.weight.device)
        if bias is not None:
            self.bias = bias.detach().to(self.weight.device, torch.bfloat16, copy=True)

    def shape(self, data: str) -> tuple[int, int]:
        return self.out_features, up(self.in_features, BLOCK)

    def batch_invariant(self, tokens: int = 16) -> NVFP4Linear:
        """From now on a token's result is the same, bit for bit, in every batch, and no NaN or
        outlier of another token reaches it. Each token has a scale of its own, a power of two
        (`input_scale` has no part in it), and every call of the kernels has `tokens` rows, some of
        which may be padding: for decode, under torch.compile, which fuses the scaling. More tokens
        are several calls. Like new weights, it ends exported programs of this layer."""
        self._take_groups(tokens)
        return self

    def make_runner(self) -> Runner:
        bias, global_scale = self.bias, make_global_scale(self.weight_scale_2)
        if bias is not None:
            bias = pad(bias, (0, self.weight.shape[0] - self.out_features))
            self._buffers["bias"] = bias[: self.out_features]
        input_global_scale = make_global_scale(self.input_scale) if self.input_scale > 0 else None
        if self._group:  # of rows whose amax is below 1; above, there is room for 4
            bias, input_global_scale = (
                None,
                make_global_scale(torch.full_like(self.input_scale, 4 / 2688)),
            )
        return LinearRunner(
            self.weight,
            self.weight_scale,
            global_scale,
            bias=bias,
            input_global_scale=input_global_scale,
            w4a16=not self._group and self.keeps_bf16(),
        )

    def forward(self, x: Tensor) -> Tensor:
        self.require_ready()
        rows = as_rows(x, self.in_features)
        more = -self.in_features % K_MULTIPLE
        if more:
            rows = pad(rows, (0, more))
        size = up(self.out_features, N_MULTIPLE)
        run = self._run_by_token if self._group else self._run
        y = run(rows, size)
        if size != self.out_features:
            y = y[:, : self.out_features].contiguous()
        return like(y, x)

    def _run(self, rows: Tensor, size: int) -> Tensor:
        return self.call(torch.ops.nvfp4.linear_gemm.default, rows, size=size)

    def _run_by_token(self, rows: Tensor, size: int) -> Tensor:
        tokens, group = rows.shape[0], self._group
        # 2^exponent > amax: a power of two is exact, and the kernels' rounding that of any scale.
        amax = rows.abs().amax(1, keepdim=True).float()
        exponent = torch.frexp(amax).exponent.clamp(-126, 126)
        scaled = torch.ldexp(rows.float() + 0 * amax, -exponent)  # NaN for infinity, not saturated
        scaled = scaled.to(torch.bfloat16)
        if tokens <= group:
            y = self._run(pad(scaled, (0, 0, 0, group - tokens)), size)
        else:
            scaled = pad(scaled, (0, 0, 0, -tokens % group))
            y = torch.cat([self._run(part, size) for part in scaled.split(group)])
        y = torch.ldexp(y[:tokens].float(), exponent)
        if self.bias is not None:
            y = y + pad(self.bias, (0, size - self.out_features)).float()
        return y.to(torch.bfloat16)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, {self._shown()}"
        )


def quantize_(
    model: nn.Module,
    filter: Callable[[str, nn.Module], bool] | None = None,
    *,
    activations: Activations = None,
) -> QuantizeReport:
    """Puts an NVFP4Linear where the model has an nn.Linear or a Conv1D of transformers (GPT-2's),
    and NVFP4Experts where it has stacked experts of transformers, for which `filter(name, module)`
    holds; without a filter, everywhere. Left alone are experts with another activation than SwiGLU;
    subclasses of nn.Linear, and what is in an nn.TransformerEncoderLayer, because their parents
    compute with the weights themselves; and modules with a forward of their own, or a weight that
    is computed. Hooks of a forward stay. A model on meta becomes one of empty layers, for
    load_state_dict(…, assign=True). `activations`: NVFP4Linear's, of every layer. Where a weight is
    tied to another module's, as a head's to the embedding, a later `tie_weights()` is an error: a
    filter leaves the layer as it is.

    Returns a report of what was replaced and what was left, and why; warns of experts in parameters
    of three dimensions that stay, and where nothing was replaced. Errors name the layer; those
    before it are NVFP4 then."""
    if type(model) is nn.Linear:
        raise ValueError(
            "the model itself is a Linear: NVFP4Linear.from_linear(model) makes a new one"
        )
    parameters = sum(parameter.numel() for parameter in model.parameters())
    made: dict[int, NVFP4Linear | NVFP4Experts] = {}  # a module that is in two places stays one
    replaced, numbers = [], 0
    for name, parent in list(model.named_modules(remove_duplicate=False)):
        for child_name, child in list(parent._modules.items()):
            stacked = is_stacked(child) and unsupported_reason(child) is None
            linear = is_linear(child)
            if not (linear or stacked) or isinstance(parent, nn.TransformerEncoderLayer):
                continue
            if reason_changed(child) is not None:
                continue
            path = f"{name}.{child_name}" if name else child_name
            if filter is None or filter(path, child):
                if id(child) not in made:
                    try:
                        made[id(child)] = (
                            NVFP4Linear.from_linear(as_linear(child), activations=activations)
                            if linear
                            else NVFP4Experts.from_module(child, activations=activations)
                        )
                    except ValueError as error:
                        raise ValueError(f"{path}: {error}") from error
                    for hooks in _HOOKS:  # the same, so that their handles remove them
                        made[id(child)].__dict__[hooks] = child.__dict__[hooks]
                    numbers += sum(parameter.numel() for parameter in child.parameters())
                setattr(parent, child_name, made[id(child)])
                replaced.append(path)
    report = QuantizeReport(tuple(replaced), _left(model), numbers, parameters)
    report.warn()
    return report


def _left(model: nn.Module) -> dict[str, str]:
    modules = dict(model.named_modules())
    left = {}
    for path, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            module = path.rpartition(".")[0]
            parent = modules.get(module.rpartition(".")[0]) if module else None
            left[path] = reason_left(modules[module], parent, parameter.dim())
    return left


def process_weights_after_loading(layer: nn.Module, **settings: Any) -> NVFP4Linear | NVFP4MoE:
    """For the quantisation method of an inference engine, whose own layer was loaded from a
    ModelOpt checkpoint: weight, weight_scale, weight_scale_2 and input_scale, or those of experts
    under w13_ and w2_, become `layer.nvfp4`, which `apply` calls, `layer.runner_id` and
    `layer.fingerprint`.
    `settings`: NVFP4MoE's, such as its limit."""
    kinds = ("weight", "weight_scale", "weight_scale_2", "input_scale")
    stacked = hasattr(layer, "w13_weight")
    names = [f"{part}_{kind}" for part in ("w13", "w2") for kind in kinds] if stacked else kinds
    tensors = {name: getattr(layer, name, None) for name in names}
    missing = [name for name in names if tensors[name] is None and not name.endswith("input_scale")]
    if missing:
        raise ValueError(
            f"this {type(layer).__name__} has no {', '.join(missing)}; expected the tensors of a "
            "ModelOpt checkpoint"
        )
    made: NVFP4Linear | NVFP4MoE
    if stacked:
        made = NVFP4MoE.from_stacked(tensors, **settings)
    else:
        bias = getattr(layer, "bias", None)
        made = NVFP4Linear.from_checkpoint(
            **tensors, bias=bias if isinstance(bias, Tensor) else None, **settings
        )
    for name in names:
        if hasattr(layer, name):
            delattr(layer, name)
    layer.nvfp4 = made
    layer.runner_id, layer.fingerprint = made.runner_id, made.fingerprint
    return made
