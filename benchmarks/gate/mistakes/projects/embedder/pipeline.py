"""Turn texts into vectors of unit length."""

import torch
from encoder import Encoder
from tokenizer import VOCABULARY, Tokenizer
from torch.nn import functional


def load(device):
    torch.manual_seed(0)
    encoder = Encoder(VOCABULARY)
    encoder.eval()
    return Pipeline(encoder.to(device), Tokenizer())


def pooled(hidden, mask):
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


class Pipeline:
    def __init__(self, encoder, tokenizer):
        self.encoder = encoder
        self.tokenizer = tokenizer

    @torch.no_grad()
    def encode(self, texts):
        ids, mask = self.tokenizer.batch(texts)
        hidden = self.encoder(ids, mask)
        vectors = pooled(hidden, mask)
        return functional.normalize(vectors, dim=-1)
