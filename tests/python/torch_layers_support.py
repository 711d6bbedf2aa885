# SPDX-License-Identifier: Apache-2.0
"""What the tests of the layers share: layers in bf16, checkpoints, and their emulation."""

import math

import numpy as np
import torch
from torch import nn

from nvfp4_emulation import Quantized, bf16, swiglu


def numbers(tensor):
    return tensor.detach().float().numpy()


def cosine(given, expected):
    flat = [tensor.double().flatten() for tensor in (given, expected)]
    return torch.cosine_similarity(*flat, dim=0).item()


def bf16_linear(in_features, out_features, bias=False):
    return nn.Linear(in_features, out_features, bias, dtype=torch.bfloat16)


def decode_of(amax):
    return np.float32(amax) / np.float32(2688)


def modelopt(weight):
    """The tensors of a linear layer as ModelOpt exports them: block scales row by row."""
    x = numbers(weight)
    decode = decode_of(np.abs(x).max())
    matrix = Quantized(x, np.array([1 / decode, decode], np.float32))
    scales = torch.from_numpy(matrix.scales).view(torch.float8_e4m3fn)
    data = torch.from_numpy(matrix.codes[:, 0::2] | matrix.codes[:, 1::2] << 4)
    tensors = {"weight": data, "weight_scale": scales, "weight_scale_2": torch.tensor(decode)}
    return tensors, matrix.numbers()


def emulated_linear(x, weight, input_scale=None, bias=0.0):
    global_scale = (
        None if input_scale is None else np.array([1 / input_scale, input_scale], np.float32)
    )
    return bf16(Quantized(numbers(x), global_scale).numbers() @ weight.T + bias)


class Mlp(nn.Module):
    """What a shared expert, or one of many, is in bf16."""

    def __init__(self, hidden=64, width=32, limit=math.inf):
        super().__init__()
        self.gate_proj = bf16_linear(hidden, width)
        self.up_proj = bf16_linear(hidden, width)
        self.down_proj = bf16_linear(width, hidden)
        self.limit = limit

    def forward(self, x):
        gate = self.gate_proj(x).float().clamp(max=self.limit)
        up = self.up_proj(x).float().clamp(-self.limit, self.limit)
        return self.down_proj((nn.functional.silu(gate) * up).to(x.dtype))

    def emulated(self, x, activation_decode, alpha=1.0, beta=0.0):
        """In NVFP4: gate clamped before SiLU, SwiGLU rounded to bf16 once."""
        both = Quantized(numbers(torch.cat([self.gate_proj.weight, self.up_proj.weight])))
        down = Quantized(numbers(self.down_proj.weight))
        gate, up = np.split(Quantized(numbers(x)).numbers() @ both.numbers().T, 2, axis=1)
        y = swiglu(gate, up, self.limit, alpha, beta)
        global_scale = np.array([1 / np.float32(activation_decode), activation_decode], np.float32)
        return Quantized(y, global_scale).numbers() @ down.numbers().T
