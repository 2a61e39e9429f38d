"""What perfgate measures: a model, its inputs and what its output must be. This file runs as it is."""

import torch
from torch import nn

from perfgate import Workload

# YOUR MODEL: replace this class by an import, such as `from mymodel import Encoder`. The repository's root and its `src`
# are on Python's path.


class Encoder(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, num_heads=4, batch_first=True)
        self.after = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        normed = self.before(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return x + self.feed(self.after(x))


def build(device):
    """Return the model on the device, ready to be called: weights loaded, eval() for inference."""
    return Encoder().eval().to(device)


def inputs(batch, seed, length):
    """Return one batch on the host; a tuple is passed as positional arguments, a dict as named ones."""
    return torch.randn(batch, length, 128, generator=torch.Generator().manual_seed(seed))


def check(output, inputs):
    """Raise where the output is wrong: a faster model that computes something else must not pass."""
    assert output.shape == inputs.shape, f"expected shape {tuple(inputs.shape)}, got {tuple(output.shape)}"
    assert torch.isfinite(output).all(), "the output must be finite"


# Name the shapes that matter, the extremes included; each is judged by itself. `train_step=`, `preprocess=`, `sla=` and
# `traffic=` are optional: help(perfgate.Workload) lists everything.
example = Workload(
    build=build, inputs=inputs, check=check, batch=8, shapes={"typical": {"length": 64}, "short": {"length": 8}}
)
