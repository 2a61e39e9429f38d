"""The lab's models: what is called, what a refactoring may rename, and what their
workload files hold beside `build`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """A workload: the definitions of its module in any order, the names a refactoring
    may change, its inputs.

    ``model`` is the class whose forward is the call; ``beside`` and ``options`` are
    what the workload file defines and says beyond ``build`` and ``inputs``, and
    ``asked`` what ``inputs`` is asked for beyond batch and seed.
    """

    model: str
    definitions: tuple[str, ...]
    names: tuple[str, ...]
    inputs: str
    batch: int
    beside: str = ""
    options: str = ""
    asked: str = ""


_MLP = Source(
    model="Network",
    definitions=(
        """class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(256, 512)
        self.middle = nn.Linear(512, 512)
        self.last = nn.Linear(512, 64)

    def forward(self, batch):
        hidden = activate(self.first(batch))
        hidden = activate(self.middle(hidden))
        return self.last(hidden)
""",
        """def activate(values):
    return functional.relu(values)
""",
        """def make():
    return Network().eval()
""",
    ),
    names=("first", "middle", "last", "batch", "hidden", "activate", "values"),
    inputs="torch.randn(batch, 256, generator=generator)",
    batch=32,
)
_CONV = Source(
    model="Stem",
    definitions=(
        """class Stem(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.leave = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, images):
        features = activate(self.enter(images))
        return pool(activate(self.leave(features)))
""",
        """def activate(values):
    return functional.relu(values)
""",
        """def pool(features):
    return features.mean(dim=(2, 3))
""",
        """def make():
    return Stem(32).eval()
""",
    ),
    names=(
        "enter",
        "leave",
        "images",
        "features",
        "activate",
        "values",
        "pool",
        "width",
    ),
    inputs="torch.randn(batch, 3, 32, 32, generator=generator)",
    batch=8,
)
_TBLOCK = Source(
    model="Layer",
    definitions=(
        '''class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inward = nn.Linear(width, 3 * width)
        self.outward = nn.Linear(width, width)

    def forward(self, tokens):
        count, length, width = tokens.shape
        split = self.inward(tokens).view(count, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.outward(mixed.transpose(1, 2).reshape(count, length, width))
''',
        '''class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = Attention(width, heads)
        self.forth = nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)
        self.before = nn.LayerNorm(width)
        self.after = nn.LayerNorm(width)

    def forward(self, tokens):
        tokens = tokens + self.attention(self.before(tokens))
        return tokens + self.back(activate(self.forth(self.after(tokens))))
''',
        '''def activate(values):
    return functional.gelu(values)
''',
        '''def make():
    return Layer(128, 4).eval()
''',
    ),
    names=("inward", "outward", "tokens", "count", "length", "mixed", "split", "attention", "forth", "back", "before",
           "after", "activate", "values"),
    inputs="torch.randn(batch, 32, 128, generator=generator)",
    batch=2,
)  # fmt: skip
_EWISE = Source(
    model="Scale",
    definitions=(
        """class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, values):
        return clip(values * self.factor)
""",
        """def clip(scaled):
    return torch.relu(scaled)
""",
        """def make():
    return Scale(1.5).eval()
""",
    ),
    names=("factor", "values", "clip", "scaled"),
    inputs="torch.randn(batch * 2_000_000, generator=generator)",
    batch=1,
)
_TINY = Source(
    model="Chain",
    definitions=(
        """class Chain(nn.Module):
    def __init__(self, rounds):
        super().__init__()
        self.rounds = rounds

    def forward(self, values):
        for _ in range(self.rounds):
            values = one_round(values)
        return values
""",
        """def one_round(values):
    shifted = values + 0.5
    return shifted * 0.5
""",
        """def make():
    return Chain(40).eval()
""",
    ),
    names=("rounds", "values", "one_round", "shifted"),
    inputs="torch.randn(batch * 16, generator=generator)",
    batch=1,
)
_DECODER = """class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.inward = nn.Linear(width, 3 * width)
        self.outward = nn.Linear(width, width)
        self.forth = nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)
        self.before = nn.LayerNorm(width)
        self.after = nn.LayerNorm(width)

    def forward(self, tokens, past):
        count, length, width = tokens.shape
        split = self.inward(self.before(tokens)).view(count, length, 3, self.heads, -1)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        key, value = (key, value) if past is None else (join(past[0], key), join(past[1], value))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=past is None)
        tokens = tokens + self.outward(mixed.transpose(1, 2).reshape(count, length, width))
        return tokens + self.back(activate(self.forth(self.after(tokens)))), (key, value)
"""
_DECODER_NAMES = ("inward", "outward", "tokens", "count", "length", "mixed", "split", "past", "forth", "back", "before",
                  "after", "activate", "values", "join", "earlier", "newest", "layers", "caches")  # fmt: skip
_ACTIVATE = """def activate(values):
    return functional.gelu(values)
"""
_JOIN = """def join(earlier, newest):
    return torch.cat([earlier, newest], dim=2)
"""
_PREFILL = Source(
    model="Prefill",
    definitions=(
        _DECODER,
        _ACTIVATE,
        _JOIN,
        """class Prefill(nn.Module):
    def __init__(self, width, heads, depth):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))

    def forward(self, tokens):
        for layer in self.layers:
            tokens, _ = layer(tokens, None)
        return tokens
""",
        """def make():
    return Prefill(192, 6, 2).eval()
""",
    ),
    names=_DECODER_NAMES,
    inputs="torch.randn(batch, 160, 192, generator=generator)",
    batch=1,
)
_DECODE = Source(
    model="Decode",
    definitions=(
        _DECODER,
        _ACTIVATE,
        _JOIN,
        """class Decode(nn.Module):
    def __init__(self, width, heads, depth, steps):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.steps = steps

    def forward(self, tokens):
        caches = [None] * len(self.layers)
        for _ in range(self.steps):
            for number, layer in enumerate(self.layers):
                tokens, caches[number] = layer(tokens, caches[number])
        return tokens
""",
        """def make():
    return Decode(128, 4, 2, 12).eval()
""",
    ),
    names=_DECODER_NAMES,
    inputs="torch.randn(batch, 1, 128, generator=generator)",
    batch=4,
)
_LSTM = Source(
    model="Reader",
    definitions=(
        """class Reader(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.enter = nn.Linear(width, width)
        self.recurrent = nn.LSTM(width, width, batch_first=True)
        self.leave = nn.Linear(width, classes)

    def forward(self, sequences):
        states, _ = self.recurrent(squash(self.enter(sequences)))
        return self.leave(states[:, -1])
""",
        """def squash(values):
    return torch.tanh(values)
""",
        """def make():
    return Reader(64, 10)
""",
    ),
    names=(
        "enter",
        "recurrent",
        "leave",
        "sequences",
        "states",
        "squash",
        "values",
        "classes",
    ),
    inputs="torch.randn(batch, 16, 64, generator=generator)",
    batch=16,
    beside="""def train_step(model, sequences):
    for parameter in model.parameters():
        parameter.grad = None
    model(sequences).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad, alpha=1e-3)
""",
    options=", train_step=train_step",
)
_UNET = Source(
    model="UNet",
    definitions=(
        """class Double(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.enter = nn.Conv2d(inner, outer, 3, padding=1)
        self.leave = nn.Conv2d(outer, outer, 3, padding=1)

    def forward(self, features):
        return activate(self.leave(activate(self.enter(features))))
""",
        """class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.top = Double(3, width)
        self.middle = Double(width, 2 * width)
        self.bottom = Double(2 * width, 4 * width)
        self.rise = Double(6 * width, 2 * width)
        self.finish = Double(3 * width, width)

    def forward(self, images):
        high = self.top(images)
        half = self.middle(functional.max_pool2d(high, 2))
        low = self.bottom(functional.max_pool2d(half, 2))
        half = self.rise(torch.cat([half, enlarge(low)], dim=1))
        return self.finish(torch.cat([high, enlarge(half)], dim=1))
""",
        """def activate(values):
    return functional.relu(values)
""",
        """def enlarge(smaller):
    return functional.interpolate(smaller, scale_factor=2)
""",
        """def make():
    return UNet(12).eval()
""",
    ),
    names=("inner", "outer", "enter", "leave", "features", "top", "middle", "bottom", "rise", "finish", "images", "high",
           "half", "low", "activate", "values", "enlarge", "smaller"),
    inputs="torch.randn(batch, 3, 64, 64, generator=generator)",
    batch=4,
)  # fmt: skip
_IMAGES = Source(
    model="Stem",
    definitions=(
        """class Stem(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.leave = nn.Linear(width, 10)

    def forward(self, images):
        return self.leave(functional.relu(self.enter(images)).mean(dim=(2, 3)))
""",
        """def shrink(pixels):
    return functional.interpolate(pixels.permute(0, 3, 1, 2).float(), size=(48, 48), mode="bilinear", antialias=True)
""",
        """def normalise(pixels):
    return (pixels / 255 - 0.45) / 0.22
""",
        """def make():
    return Stem(16).eval()
""",
    ),
    names=("enter", "leave", "images", "width"),
    inputs="torch.randint(0, 256, (batch, 96, 96, 3), generator=generator, dtype=torch.uint8)",
    batch=4,
    beside="""def preprocess(pixels):
    return model.normalise(model.shrink(pixels))
""",
    options=", preprocess=preprocess",
)
_PYTHON = Source(
    model="Tagger",
    definitions=(
        """class Tagger(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.table = nn.Embedding(words, 16)
        self.known = {f"w{number}": number for number in range(words)}

    def forward(self, numbers):
        texts = [f"w{number}" for number in numbers.tolist()]
        found = [self.known.get(part, 0) for text in texts for part in pieces(text)]
        return self.table(torch.tensor(ordered(found))).sum(dim=0)
""",
        """def pieces(text):
    return [text] + [text[:size] for size in range(1, len(text))]
""",
        """def ordered(found):
    counts = {}
    for number in found:
        counts[number] = counts.get(number, 0) + 1
    return [number for number, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
""",
        """def make():
    return Tagger(4000).eval()
""",
    ),
    names=(
        "table",
        "known",
        "numbers",
        "texts",
        "found",
        "part",
        "pieces",
        "size",
        "ordered",
        "counts",
    ),
    inputs="torch.randint(0, 4000, (batch * 400,), generator=generator)",
    batch=1,
)
_LENGTHS = Source(
    model="Encoder",
    definitions=(
        """class Encoder(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        self.leave = nn.Linear(width, 8)

    def forward(self, tokens):
        return pool(self.leave(self.layer(tokens)))
""",
        """def pool(scores):
    return scores.amax(dim=1)
""",
        """def make():
    return Encoder(96, 4).eval()
""",
    ),
    names=("layer", "leave", "tokens", "pool", "scores"),
    inputs="torch.randn(batch, length, 96, generator=generator)",
    batch=2,
    options=', shapes={"short": {"length": 16}, "long": {"length": 128}}',
    asked=", length",
)
SOURCES = {
    "mlp": _MLP,
    "tblock": _TBLOCK,
    "ewise": _EWISE,
    "conv": _CONV,
    "tiny": _TINY,
    "prefill": _PREFILL,
    "decode": _DECODE,
    "lstm": _LSTM,
    "unet": _UNET,
    "images": _IMAGES,
    "python": _PYTHON,
    "lengths": _LENGTHS,
}
