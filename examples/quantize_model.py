# SPDX-License-Identifier: Apache-2.0
# A model to NVFP4, cell by cell: open it in an editor that knows `# %%`, or run it.
# It needs no GPU: on the CPU the kernels are emulated exactly.

# %% A small transformer, in bf16.
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

from cukiln.torch import NVFP4Linear, quantize_

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
WIDTH, HEADS, VOCABULARY = 256, 4, 1000


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 4 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, HEADS, -1)).movedim(-3, 0)
        q, k, v = (part.transpose(-2, -3) for part in heads)
        attended = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(-2, -3).flatten(-2))
        h = self.norm_2(x)
        return x + self.down(silu(self.gate(h)) * self.up(h))


class Transformer(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embedding(tokens))))


model = Transformer().to(device, torch.bfloat16).eval().requires_grad_(False)
tokens = torch.randint(VOCABULARY, (2, 16), device=device)
reference = model(tokens)
before = sum(tensor.nbytes for tensor in model.state_dict().values())

# %% Every linear layer but the head becomes an NVFP4Linear.
quantize_(model, lambda name, linear: name != "head")
after = sum(tensor.nbytes for tensor in model.state_dict().values())
cosine = torch.cosine_similarity(model(tokens).flatten().float(), reference.flatten().float(), 0)
print(f"{before / 2**20:.1f} MiB to {after / 2**20:.1f} MiB, logits' cosine {cosine:.4f}")

# %% Save, and load into a model whose layers are empty.
with tempfile.TemporaryDirectory() as folder:
    torch.save(model.state_dict(), Path(folder) / "model.pt")
    again = Transformer().to(torch.bfloat16)
    for block in again.blocks:
        for name, linear in list(block.named_children()):
            if isinstance(linear, nn.Linear):
                setattr(block, name, NVFP4Linear(linear.in_features, linear.out_features))
    again.load_state_dict(torch.load(Path(folder) / "model.pt"))
again.to(device).eval().requires_grad_(False)
print("loaded equals saved:", torch.equal(again(tokens), model(tokens)))

# %% Compile, with scratch for the most tokens there will be.
for layer in model.modules():
    if isinstance(layer, NVFP4Linear):
        layer.reserve(tokens.numel())
mode = {"mode": "reduce-overhead"} if device == "cuda" else {"backend": "aot_eager"}
compiled = torch.compile(model, fullgraph=True, **mode)
print("compiled close to eager:", torch.allclose(compiled(tokens), model(tokens), atol=0.1))
