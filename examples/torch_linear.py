# SPDX-License-Identifier: Apache-2.0
"""An nn.Linear in NVFP4: made, compiled, saved as a checkpoint and loaded.

Runs on the first GPU, or by exact emulation on the CPU.
"""

import torch

from cukiln.torch import NVFP4Linear

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)

linear = torch.nn.Linear(1024, 512, device=device, dtype=torch.bfloat16)
layer = NVFP4Linear.from_linear(linear)  # quantised here, and laid out for the kernels
x = torch.randn(2, 8, 1024, device=device, dtype=torch.bfloat16)  # any leading shape
with torch.no_grad():
    cosine = torch.cosine_similarity(layer(x).flatten().float(), linear(x).flatten().float(), 0)
print(f"{layer} on {device}: cosine {cosine:.4f} to bf16")

compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
print("compiled equals eager:", torch.equal(compiled(x), layer(x)))

# A state dict is what a ModelOpt checkpoint has for this layer.
checkpoint = layer.state_dict()
print({name: tuple(tensor.shape) for name, tensor in checkpoint.items()})
loaded = NVFP4Linear(1024, 512, bias=True, device=device)
loaded.load_state_dict(checkpoint)
print("loaded equals saved:", torch.equal(loaded(x), layer(x)))
