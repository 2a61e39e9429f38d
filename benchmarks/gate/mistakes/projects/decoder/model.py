"""Greedy decoding of a few tokens."""

import torch
from layers import Block, Cache
from torch import nn


class Decoder(nn.Module):
    def __init__(self, width=128, heads=4, blocks=2, symbols=512):
        super().__init__()
        self.heads, self.width = heads, width
        self.embed = nn.Embedding(symbols, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(blocks))
        self.head = nn.Linear(width, symbols, bias=False)

    def forward(self, prompt, tokens=12):
        batch = prompt.shape[0]
        caches = [
            Cache(batch, self.heads, tokens, self.width // self.heads)
            for _ in self.blocks
        ]
        token, output = prompt[:, 0], []
        for at in range(tokens):
            hidden = self.embed(token)
            for block, cache in zip(self.blocks, caches):
                hidden = block(hidden, cache, at)
            token = self.head(hidden).argmax(dim=-1)
            output.append(token)
        return torch.stack(output, dim=1)
