"""Attention over the items of a session."""

from torch import nn
from torch.nn import functional


class SelfAttention(nn.Module):
    """Multi-head self-attention: (batch, length, width) in and out."""

    def __init__(self, width, *, heads):
        super().__init__()
        self.heads = heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, hidden):
        batch, length, width = hidden.shape
        split = self.project_in(hidden).view(batch, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(query, key, value)
        return self.project_out(attended.transpose(1, 2).reshape(batch, length, width))
