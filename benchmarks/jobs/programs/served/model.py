"""A small decoder with a cache of keys and values, a slot for each request under way."""

import torch
from torch import nn
from torch.nn import functional

WORDS, SIZE, HEADS, DEPTH, CONTEXT = 4096, 64, 4, 20, 512


class Attention(nn.Module):
    def __init__(self, slots):
        super().__init__()
        self.inputs = nn.Linear(SIZE, 3 * SIZE)
        self.output = nn.Linear(SIZE, SIZE)
        shape = (slots, HEADS, CONTEXT, SIZE // HEADS)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, states, slots, at, mask):
        count, length, _ = states.shape
        query, key, value = (
            self.inputs(states).view(count, length, 3, HEADS, -1).unbind(2)
        )
        self.keys[slots[:, None], :, at] = key
        self.values[slots[:, None], :, at] = value
        reach = mask.shape[-1]
        keys, values = self.keys[slots, :, :reach], self.values[slots, :, :reach]
        mixed = functional.scaled_dot_product_attention(
            query.transpose(1, 2), keys, values, attn_mask=mask
        )
        return self.output(mixed.transpose(1, 2).reshape(count, length, SIZE))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(SIZE, 4 * SIZE), nn.Linear(4 * SIZE, SIZE)

    def forward(self, states):
        return self.down(functional.gelu(self.up(states)))


class Layer(nn.Module):
    def __init__(self, slots):
        super().__init__()
        self.attention, self.feed_forward = Attention(slots), FeedForward()
        self.before, self.between = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)

    def forward(self, states, slots, at, mask):
        states = states + self.attention(self.before(states), slots, at, mask)
        return states + self.feed_forward(self.between(states))


class Decoder(nn.Module):
    def __init__(self, slots):
        super().__init__()
        self.embed = nn.Embedding(WORDS, SIZE)
        self.layers = nn.ModuleList(Layer(slots) for _ in range(DEPTH))
        self.head = nn.Linear(SIZE, WORDS)

    @torch.inference_mode()
    def forward(self, tokens, slots, at):
        """The scores of the next token: ``at`` are the positions of the tokens, a row
        for each slot.
        """
        reach = int(at.max()) + 1
        mask = (torch.arange(reach) <= at[:, :, None])[:, None]
        states = self.embed(tokens)
        for layer in self.layers:
            states = layer(states, slots, at, mask)
        return self.head(states[:, -1])
