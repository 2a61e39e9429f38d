"""One training step of a tagger."""

import torch
from torch import nn
from torch.nn import functional


class Tagger(nn.Module):
    def __init__(self, words=2000, width=128, tags=16):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, batch_first=True
        )
        self.head = nn.Linear(width, tags)

    def forward(self, words):
        return self.head(self.layer(self.embed(words)))


class Training:
    def __init__(self, device):
        torch.manual_seed(0)
        self.model = Tagger().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.losses = []
        self.scale = torch.tensor(1.0)

    def step(self, words, tags):
        self.optimizer.zero_grad()
        logits = self.model(words)
        loss = functional.cross_entropy(logits.flatten(0, 1), tags.flatten())
        loss.backward()
        self.optimizer.step()
        return loss.detach()
