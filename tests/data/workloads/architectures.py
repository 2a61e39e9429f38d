"""Ten public architectures as plain torch models, small enough to run in seconds, each with its own difficulties."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from perfgate import Workload

WIDTH = 64


def _workload(model, inputs, **fields):
    def drawn(batch, seed):
        return inputs(batch, torch.Generator().manual_seed(seed))

    return Workload(build=lambda device: model().eval().to(device), inputs=drawn, batch=4, **fields)


class Encoder(nn.Module):
    """In eval torch runs its layers on a fast path, which its own compiler does not get right."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, batch_first=True)
        self.embedding = nn.Embedding(1000, WIDTH)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, ids):
        return self.head(self.encoder(self.embedding(ids)).mean(1))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.position = nn.Parameter(torch.zeros(1, 17, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, images):
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], 1) + self.position
        return self.head(self.blocks(tokens)[:, 0])


class Residual(nn.Module):
    def __init__(self, before, after, stride):
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.second, self.second_norm = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.short = nn.Conv2d(before, after, 1, stride) if stride > 1 or before != after else nn.Identity()

    def forward(self, x):
        inner = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(inner)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        self.blocks = nn.Sequential(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
        self.head = nn.Linear(64, 10)

    def forward(self, images):
        return self.head(self.blocks(functional.relu(self.stem(images))).mean((2, 3)))


class UNet(nn.Module):
    """Skips over two levels; a group norm and transposed convolutions."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2 = self._block(3, 16), self._block(16, 32)
        self.bottom = self._block(32, 64)
        self.up2, self.up1 = nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)
        self.mix2, self.mix1 = self._block(64, 32), self._block(32, 16)
        self.head = nn.Conv2d(16, 2, 1)

    def _block(self, before, after):
        return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU())

    def forward(self, x):
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        bottom = self.bottom(functional.max_pool2d(second, 2))
        up = self.mix2(torch.cat([self.up2(bottom), second], 1))
        return self.head(self.mix1(torch.cat([self.up1(up), first], 1)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1000, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * WIDTH, 7)

    def forward(self, ids):
        output, _ = self.lstm(self.embedding(ids))
        return functional.log_softmax(self.head(output), -1)


class MoE(nn.Module):
    """Each token goes to its two best experts; how many tokens one gets depends on the data."""

    def __init__(self, experts=4):
        super().__init__()
        self.gate = nn.Linear(WIDTH, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 128), nn.GELU(), nn.Linear(128, WIDTH)) for _ in range(experts)
        )

    def forward(self, x):
        tokens = x.flatten(0, 1)
        weights, chosen = self.gate(tokens).softmax(-1).topk(2, -1)
        output = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, slot = (chosen == number).nonzero(as_tuple=True)
            output.index_add_(0, rows, expert(tokens[rows]) * weights[rows, slot].unsqueeze(-1))
        return output.view_as(x)


class Scan(nn.Module):
    """A selective state space, one step after another, as Mamba's reference does it."""

    def __init__(self, state=8):
        super().__init__()
        self.inner, self.out = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH, padding=3)
        self.parameters_of = nn.Linear(WIDTH, 2 * state + 1)
        self.decay = nn.Parameter(torch.arange(1.0, state + 1).log().repeat(WIDTH, 1))
        self.state = state

    def forward(self, x):
        inner, gate = self.inner(x).chunk(2, -1)
        length = x.shape[1]
        inner = functional.silu(self.convolution(inner.transpose(1, 2))[..., :length].transpose(1, 2))
        into, out, step = self.parameters_of(inner).split([self.state, self.state, 1], -1)
        step = functional.softplus(step)
        state = x.new_zeros(len(x), WIDTH, self.state)
        outputs = []
        for at in range(length):
            forget = torch.exp(-step[:, at, :, None] * self.decay.exp())
            state = state * forget + (step[:, at] * inner[:, at]).unsqueeze(-1) * into[:, at].unsqueeze(1)
            outputs.append((state * out[:, at].unsqueeze(1)).sum(-1))
        return self.out(torch.stack(outputs, 1) * functional.silu(gate))


class GNN(nn.Module):
    """Messages along edges, summed up where they arrive."""

    def __init__(self):
        super().__init__()
        self.message, self.update = nn.Linear(2 * WIDTH, WIDTH), nn.GRUCell(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, nodes, source, target, graphs):
        for _ in range(3):
            messages = functional.relu(self.message(torch.cat([nodes[source], nodes[target]], -1)))
            index = target.unsqueeze(-1).expand_as(messages)
            received = torch.zeros_like(nodes).scatter_add(0, index, messages)
            nodes = self.update(received, nodes)
        counts = torch.zeros(graphs.max() + 1, WIDTH, device=nodes.device)
        return self.head(counts.index_add(0, graphs, nodes))


class Diffusion(nn.Module):
    """One step of denoising with the time as an embedding: new noise is drawn in every call."""

    def __init__(self):
        super().__init__()
        self.unet = UNet()
        self.unet.head = nn.Conv2d(16, 3, 1)
        self.time = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 3))

    def forward(self, noisy, time=500):
        angles = time * torch.exp(-math.log(10000.0) * torch.arange(16, device=noisy.device) / 16)
        shift = self.time(torch.cat([angles.sin(), angles.cos()]))[None, :, None, None]
        predicted = self.unet(noisy + shift)
        return noisy - 0.1 * predicted + 0.01 * torch.randn_like(noisy)


class Decoder(nn.Module):
    """Reads a prompt, then writes eight tokens, each with the keys and values of all before it in a cache."""

    def __init__(self, layers=2, heads=4):
        super().__init__()
        self.embedding = nn.Embedding(500, WIDTH)
        self.attention = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(layers))
        self.project = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 128), nn.GELU(), nn.Linear(128, WIDTH))
            for _ in range(layers)
        )
        self.heads = heads

    def forward(self, ids):
        cache = [None] * len(self.attention)
        x, written = self._read(self.embedding(ids), cache), []
        for _ in range(8):
            token = (x[:, -1] @ self.embedding.weight.t()).argmax(-1, keepdim=True)
            written.append(token)
            x = self._read(self.embedding(token), cache)
        return torch.cat(written, 1), x

    def _read(self, x, cache):
        for number, (attention, project, mlp) in enumerate(zip(self.attention, self.project, self.mlp)):
            split = (len(x), x.shape[1], self.heads, WIDTH // self.heads)
            query, key, value = (part.view(split).transpose(1, 2) for part in attention(x).chunk(3, -1))
            if cache[number] is not None:
                key, value = (torch.cat(pair, 2) for pair in zip(cache[number], (key, value)))
            cache[number] = (key, value)
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=x.shape[1] > 1)
            x = x + project(attended.transpose(1, 2).flatten(2))
            x = x + mlp(x)
        return x


def _ids(batch, generator):
    return torch.randint(0, 500, (batch, 16), generator=generator)


def _images(batch, generator):
    return torch.randn(batch, 3, 32, 32, generator=generator)


def _sequences(batch, generator):
    return torch.randn(batch, 16, WIDTH, generator=generator)


def _graphs(batch, generator, nodes=20, edges=60):
    """Graphs beside one another, their nodes and edges in one list each."""
    ends = torch.randint(0, nodes, (2, batch * edges), generator=generator)
    first = torch.arange(batch).repeat_interleave(edges) * nodes
    return {
        "nodes": torch.randn(batch * nodes, WIDTH, generator=generator),
        "source": ends[0] + first,
        "target": ends[1] + first,
        "graphs": torch.arange(batch).repeat_interleave(nodes),
    }


encoder = _workload(Encoder, _ids)
vit = _workload(ViT, _images)
resnet = _workload(ResNet, _images)
unet = _workload(UNet, _images)
lstm = _workload(Tagger, _ids)
moe = _workload(MoE, _sequences)
mamba = _workload(Scan, _sequences)
gnn = _workload(GNN, _graphs)
diffusion = _workload(Diffusion, _images)
decoder = _workload(Decoder, _ids)
