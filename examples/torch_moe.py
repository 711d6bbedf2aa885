# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts and a shared expert in NVFP4, each one node from hidden states to hidden
states.

Runs on the first GPU, or by exact emulation on the CPU.
"""

import torch
from torch import nn

from cukiln.torch import NVFP4MoE, NVFP4SharedExpert

HIDDEN, WIDTH, EXPERTS, TOPK, LIMIT = 256, 128, 8, 2, 10.0
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.up_proj = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.down_proj = nn.Linear(WIDTH, HIDDEN, bias=False)

    def forward(self, x):
        gate = self.gate_proj(x).clamp(max=LIMIT)  # before SiLU
        return self.down_proj(nn.functional.silu(gate) * self.up_proj(x).clamp(-LIMIT, LIMIT))


experts = nn.ModuleList(Expert() for _ in range(EXPERTS)).to(device)
shared = Expert().to(device)
router = nn.Linear(HIDDEN, EXPERTS, device=device)

# Without calibration what lies between the GEMMs has a scale of each token at each of its experts.
moe = NVFP4MoE.from_linear(experts, limit=LIMIT)
one = NVFP4SharedExpert.from_linear([shared], limit=LIMIT)
for layer in (moe, one):
    layer.reserve(64)  # tokens: the first call then allocates nothing but its output

with torch.no_grad():
    x = torch.randn(16, HIDDEN, device=device)
    weights, ids = router(x).softmax(-1).topk(TOPK)
    y = moe(x, weights, ids) + one(x)

    expected = shared(x)
    for token in range(len(x)):
        for weight, expert in zip(weights[token], ids[token].tolist(), strict=True):
            expected[token] += weight * experts[expert](x[token])
print(f"{moe} on {device}")
print(f"cosine {torch.cosine_similarity(y.flatten(), expected.flatten(), 0):.4f} to float32")
