"""Blocks of common vision and language models, small and deterministic; run on the CPU and on the NPU by test_models.py.

python models.py NAME        # inference and one training step on both devices, values compared
"""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, LENGTH, BATCH, WORDS = 32, 4, 6, 2, 50
TOLERANCE = 2e-4


# ---- language


class BertLayer(nn.Module):
    """Post-norm encoder layer with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)

    def forward(self, ids: Tensor) -> Tensor:
        mask = (ids != 0)[:, None, None, :]
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        query, key, value = (split(part(x)) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        x = self.first(x + self.out(join(torch.softmax(scores, dim=-1) @ value)))
        x = self.second(x + self.down(functional.gelu(self.up(x))))
        # mean over the words that are there, as sentence encoders pool
        weights = (ids != 0).unsqueeze(-1).to(x.dtype)
        return functional.normalize((x * weights).sum(1) / weights.sum(1).clamp(min=1e-9), dim=-1)


class GptBlock(nn.Module):
    """Pre-norm causal block with a cache of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.before, self.after, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inward, self.outward = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def block(self, x: Tensor, cache: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        query, key, value = (split(part) for part in self.inward(self.before(x)).split(WIDTH, dim=-1))
        if cache is not None:
            key, value = torch.cat([cache[0], key], dim=-2), torch.cat([cache[1], value], dim=-2)
        scores = query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        allowed = torch.ones(key.shape[-2], key.shape[-2], dtype=torch.bool, device=x.device).tril()
        scores = torch.where(allowed[-query.shape[-2] :], scores, torch.full_like(scores, -1e4))
        x = x + self.outward(join(scores.softmax(dim=-1) @ value))
        up = self.up(self.after(x))
        gelu = 0.5 * up * (1 + torch.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * torch.pow(up, 3))))
        return x + self.down(gelu), (key, value)

    def forward(self, ids: Tensor) -> Tensor:
        x, cache = self.block(self.words(ids[:, :-1]), None)
        step, _ = self.block(self.words(ids[:, -1:]), cache)
        return self.last(torch.cat([x, step], dim=1)) @ self.words.weight.T


class LlamaBlock(nn.Module):
    """RMS norm, rotary places, grouped queries, SwiGLU."""

    GROUPS = 2

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.norm, self.norm2 = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))
        size = WIDTH // HEADS
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, self.GROUPS * size, bias=False) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        y = rms_norm(x, self.norm)
        query, key, value = self.query(y), self.key(y), self.value(y)
        size = WIDTH // HEADS
        query, key, value = (part.view(*ids.shape, -1, size).transpose(1, 2) for part in (query, key, value))
        query, key = rotate(query), rotate(key)
        key, value = (part.repeat_interleave(HEADS // self.GROUPS, dim=1) for part in (key, value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(join(mixed))
        y = rms_norm(x, self.norm2)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


def split(x: Tensor) -> Tensor:
    """(batch, length, width) to (batch, heads, length, size)."""
    return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)


def join(x: Tensor) -> Tensor:
    """The way back."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6).to(x.dtype) * weight


def rotate(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    frequencies = 1.0 / 10000 ** (torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.outer(torch.arange(x.shape[-2], device=x.device, dtype=torch.float32), frequencies)
    angles = torch.cat([angles, angles], dim=-1)
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * angles.cos() + turned * angles.sin()


# ---- vision


class VitBlock(nn.Module):
    """Patches, class token, one pre-norm block of nn.MultiheadAttention."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, stride=4)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH) / 10)
        self.places = nn.Parameter(torch.randn(1, 17, WIDTH) / 10)
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.network = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.places
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.network(self.after(x))
        return self.head(x[:, 0])


class ResNetBlock(nn.Module):
    """Stem, a basic block with a strided shortcut, pooling, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.first = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.second = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16))
        self.shortcut = nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))

    def forward(self, images: Tensor) -> Tensor:
        x = self.pool(self.stem(images))
        return self.head(functional.relu(self.second(self.first(x)) + self.shortcut(x)))


class MobileNetBlock(nn.Module):
    """Inverted residual with a depthwise convolution, squeeze and excitation, and the hard activations."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(3, 12, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU6())
        self.depthwise = nn.Sequential(
            nn.Conv2d(12, 12, 3, 1, 1, groups=12, bias=False), nn.BatchNorm2d(12), nn.Hardswish()
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 4, 1), nn.ReLU(), nn.Conv2d(4, 12, 1), nn.Hardsigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(12, 3, 1, bias=False), nn.BatchNorm2d(3))

    def forward(self, images: Tensor) -> Tensor:
        x = self.depthwise(self.expand(images))
        return images + self.project(x * self.squeeze(x))


class UNetBlock(nn.Module):
    """Down, up by transposed convolution and by interpolation, skip by concatenation, group norm."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU())
        self.bottom = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.LeakyReLU(0.1))
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(24, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        skip = self.down(images)
        bottom = self.bottom(functional.avg_pool2d(skip, 2))
        nearest = functional.interpolate(bottom, scale_factor=2, mode="nearest")
        return torch.sigmoid(self.out(torch.cat([skip, self.up(bottom), nearest], dim=1)))


class Recommender(nn.Module):
    """Click prediction: bags of ids, dense features, pairwise products."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(WORDS, 8) for _ in range(3))
        self.dense = nn.Sequential(
            nn.Linear(5, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Dropout(0.0), nn.Linear(16, 8), nn.ELU()
        )
        self.top = nn.Sequential(nn.Linear(14, 8), nn.PReLU(), nn.Linear(8, 1))

    def forward(self, ids: Tensor) -> Tensor:
        dense = self.dense(functional.one_hot(ids[:, 3] % 5, 5).float())
        features = torch.stack([dense, *(table(ids[:, k]) for k, table in enumerate(self.tables))], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        low = torch.tril_indices(4, 4, offset=-1)
        return self.top(torch.cat([dense, products[:, low[0], low[1]]], dim=1)).squeeze(-1)


# ---- comparison


def words() -> Tensor:
    ids = torch.randint(1, WORDS, (BATCH, LENGTH))
    ids[0, -2:] = 0
    return ids


def images() -> Tensor:
    return torch.randn(BATCH, 3, 16, 16)


def next_word_loss(logits: Tensor, ids: Tensor) -> Tensor:
    return functional.cross_entropy(logits[:, :-1].reshape(-1, WORDS), ids[:, 1:].reshape(-1), ignore_index=0)


def class_loss(logits: Tensor, _input: Tensor) -> Tensor:
    return functional.cross_entropy(logits, torch.arange(BATCH, device=logits.device), label_smoothing=0.1)


def square_loss(out: Tensor, _input: Tensor) -> Tensor:
    return functional.mse_loss(out, torch.zeros_like(out))


def click_loss(logits: Tensor, ids: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, (ids[:, 0] % 2).float())


Loss = Callable[[Tensor, Tensor], Tensor]
MODELS: dict[str, tuple[type[nn.Module], Callable[[], Tensor], Loss]] = {
    "bert": (BertLayer, words, square_loss),
    "gpt": (GptBlock, words, next_word_loss),
    "llama": (LlamaBlock, words, square_loss),
    "vit": (VitBlock, images, class_loss),
    "resnet": (ResNetBlock, images, class_loss),
    "mobilenet": (MobileNetBlock, images, square_loss),
    "unet": (UNetBlock, images, square_loss),
    "recommender": (Recommender, words, click_loss),
}


def difference(ours: Tensor, theirs: Tensor) -> float:
    return (ours.cpu() - theirs).abs().max().item()


def compare(name: str) -> None:
    """Run a model on both devices; raise where values differ or torch_npu fell back to the CPU."""
    model, make_input, loss = MODELS[name]
    torch.manual_seed(0)
    on_cpu, x = model(), make_input()
    on_npu = copy.deepcopy(on_cpu).npu()
    with torch.no_grad():
        worst = difference(on_npu.eval()(x.npu()), on_cpu.eval()(x))
    assert worst < TOLERANCE, f"inference differs by {worst}"
    for module, one in ((on_cpu.train(), x), (on_npu.train(), x.npu())):
        # Not Adam: it divides a gradient that is zero but for rounding by itself.
        optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            loss(module(one), one).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
    theirs = dict(on_cpu.named_parameters())
    differences = {key: difference(value, theirs[key]) for key, value in on_npu.named_parameters()}
    key = max(differences, key=differences.__getitem__)
    assert differences[key] < TOLERANCE, f"after two training steps {key} differs by {differences[key]}"
    sys.stdout.write(f"{name}: inference {worst:.1e}, training {differences[key]:.1e}\n")


if __name__ == "__main__":
    warnings.filterwarnings("error", message=".*fall back to run on the CPU.*")
    for chosen in sys.argv[1:] or MODELS:
        try:
            compare(chosen)
        except (RuntimeError, AssertionError) as error:
            sys.stdout.write(f"{chosen}: {type(error).__name__}: {error}\n")
