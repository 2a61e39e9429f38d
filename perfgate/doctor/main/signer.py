"""Signs a batch of requests in 100 equal rounds, each a hash of all of it and of the round before."""

import hashlib

import torch
from torch import nn

ROUNDS = 100


class Signer(nn.Module):
    """Features of shape (batch, width) in, the 64 bytes of their signature out."""

    def __init__(self):
        super().__init__()
        self.register_buffer("key", torch.zeros(64, dtype=torch.uint8))

    def forward(self, features):
        signed = features.numpy()
        digest = self.key.numpy().tobytes()
        for _ in range(ROUNDS):
            digest = hashlib.blake2b(signed, key=digest).digest()
        return torch.frombuffer(bytearray(digest), dtype=torch.uint8)
