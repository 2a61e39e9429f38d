"""Mistakes as pull requests make them, each in one of the projects beside this file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """``old``, which stands once in the project's ``file``, becomes ``new``."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mistake:
    """A change that makes a project slower or hungrier; ``counted``: exact counters see
    it without any clock.

    ``remedy`` is a pattern of what the title or the first cause must advise, empty if
    nothing is asked.
    """

    project: str
    name: str
    counted: bool
    edits: tuple[Edit, ...]
    remedy: str = ""


def mistake(
    project: str,
    name: str,
    *edits: tuple[str, str, str],
    counted: bool = True,
    remedy: str = "",
) -> Mistake:
    return Mistake(project, name, counted, tuple(Edit(*edit) for edit in edits), remedy)


# The mistakes that reviews of PyTorch code find most often.
COMMON = (
    mistake(
        "embedder",
        "no-grad-lost",
        ("pipeline.py", "    @torch.no_grad()\n", ""),
        remedy=r"no_grad\(\)",
    ),
    mistake(
        "embedder",
        "eval-lost",
        ("pipeline.py", "    encoder.eval()\n", ""),
        remedy=r"eval\(\)",
    ),
    mistake(
        "embedder",
        "dropout-on",
        (
            "pipeline.py",
            "        vectors = pooled(hidden, mask)\n",
            "        hidden = functional.dropout(hidden, 0.1)\n        vectors = pooled(hidden, mask)\n",
        ),
        remedy=r"training=",
    ),
    mistake(
        "embedder",
        "tokenized-twice",
        (
            "pipeline.py",
            "        ids, mask = self.tokenizer.batch(texts)\n",
            "        longest = max(len(self.tokenizer.ids(text)) for text in texts)\n"
            "        assert longest <= self.tokenizer.longest\n"
            "        ids, mask = self.tokenizer.batch(texts)\n",
        ),
        remedy=r"once|cache|out of the call",
    ),
    mistake(
        "embedder",
        "cache-lost",
        ("tokenizer.py", "@lru_cache(maxsize=65536)\n", ""),
        ("tokenizer.py", "from functools import lru_cache\n", ""),
        remedy=r"once|cache|out of the call",
    ),
    mistake(
        "embedder",
        "item-in-a-loop",
        (
            "pipeline.py",
            "        vectors = pooled(hidden, mask)\n",
            "        lengths = [row.sum().item() for row in mask]\n"
            "        vectors = torch.stack([rows[: int(n)].mean(0) for rows, n in zip(hidden, lengths)])\n",
        ),
        remedy=r"as a tensor|after the call",
    ),
    mistake(
        "embedder",
        "upcast-to-double",
        (
            "pipeline.py",
            "    weights = mask.unsqueeze(-1).to(hidden.dtype)\n",
            "    weights = mask.unsqueeze(-1).double()\n",
        ),
        remedy=r"dtype|float64|double",
    ),
    mistake(
        "recommender",
        "loader-without-workers",
        ("data.py", ", num_workers=2, persistent_workers=True", ""),
        remedy="num_workers",
    ),
    mistake(
        "recommender",
        "blocking-copies",
        (
            "ranking.py",
            "batch[0].to(self.device, non_blocking=True)",
            "batch[0].to(self.device)",
        ),
        (
            "ranking.py",
            "batch[1].to(self.device, non_blocking=True)",
            "batch[1].to(self.device)",
        ),
        remedy="non_blocking=True",
    ),
    mistake(
        "recommender",
        "results-kept",
        (
            "ranking.py",
            "        return torch.cat(found)\n",
            "        self.history.append(found)\n        return torch.cat(found)\n",
        ),
        remedy="bound|detach",
    ),
    mistake(
        "recommender",
        "product-precision-lost",
        (
            "ranking.py",
            'torch.set_float32_matmul_precision("high")',
            'torch.set_float32_matmul_precision("highest")',
        ),
        remedy="set it back|full|32-bit",
    ),
    mistake(
        "distiller",
        "metric-that-synchronizes",
        (
            "training.py",
            "        self.steps += 1\n",
            "        self.steps += 1\n"
            "        self.agreement = (logits.argmax(dim=1) == target.argmax(dim=1)).float().mean().item()\n",
        ),
        remedy=r"as a tensor|after the call",
    ),
    mistake(
        "distiller",
        "losses-kept-with-their-graph",
        (
            "training.py",
            "        self.total = self.total + loss.detach()\n",
            "        self.total = self.total + loss\n",
        ),
        remedy="detach",
    ),
    mistake(
        "distiller",
        "teacher-with-gradients",
        (
            "training.py",
            "        with torch.no_grad():\n"
            "            return functional.softmax(self.teacher(images) / self.temperature, dim=1)\n",
            "        return functional.softmax(self.teacher(images) / self.temperature, dim=1)\n",
        ),
        remedy=r"no_grad\(\)",
    ),
    mistake(
        "distiller",
        "cudnn-benchmark-off",
        (
            "training.py",
            "torch.backends.cudnn.benchmark = True",
            "torch.backends.cudnn.benchmark = False",
        ),
        remedy="set it back",
    ),
)
MISTAKES = (
    *COMMON,
    mistake(
        "ranker",
        "memo-lost",
        ("features.py", "    found = _BUCKET_OF.get(word)\n", "    found = None\n"),
        counted=True,
    ),
    mistake(
        "ranker",
        "texts-kept",
        (
            "model.py",
            "        hidden = self.embed(ids)\n",
            '        self.history.append(" ".join(texts).encode() * 8)\n        hidden = self.embed(ids)\n',
        ),
        counted=True,
    ),
    mistake(
        "speech",
        "item-for-a-message",
        (
            "model.py",
            "        best = logits.argmax(dim=-1)\n",
            '        message = f"largest logit {logits.max().item():.3f}"\n'
            "        best = logits.argmax(dim=-1)\n        self.message = message\n",
        ),
        counted=True,
    ),
    mistake(
        "speech",
        "numpy-round-trip",
        (
            "model.py",
            "        hidden = self.frontend(frames)\n",
            "        frames = torch.tensor((frames.numpy() * 0.5).tolist()) * 2\n        hidden = self.frontend(frames)\n",
        ),
        counted=True,
    ),
    mistake(
        "decoder",
        "cache-cloned",
        (
            "layers.py",
            "        return self.keys[:, :, : at + 1], self.values[:, :, : at + 1]\n",
            "        return self.keys[:, :, : at + 1].clone(), self.values[:, :, : at + 1].clone()\n",
        ),
        counted=True,
    ),
    mistake(
        "decoder",
        "attention-written-out",
        (
            "layers.py",
            "        mixed = functional.scaled_dot_product_attention(queries.unsqueeze(2), keys, values)\n",
            "        scores = queries.unsqueeze(2) @ keys.transpose(2, 3) / keys.shape[-1] ** 0.5\n"
            "        mixed = torch.softmax(scores, dim=-1) @ values\n",
        ),
        counted=True,
    ),
    mistake(
        "decoder",
        "cat-every-token",
        (
            "model.py",
            "token, output = prompt[:, 0], []\n",
            "token, output = prompt[:, 0], prompt[:, :0]\n",
        ),
        (
            "model.py",
            "            output.append(token)\n",
            "            output = torch.cat([output, token[:, None]], dim=1)\n",
        ),
        (
            "model.py",
            "        return torch.stack(output, dim=1)\n",
            "        return output\n",
        ),
        counted=True,
    ),
    mistake(
        "trainer",
        "loss-item",
        (
            "train.py",
            "        return loss.detach()\n",
            "        self.losses.append(loss.item())\n        return loss.detach()\n",
        ),
        counted=True,
    ),
    mistake(
        "trainer",
        "anomaly-mode-left-on",
        (
            "train.py",
            "        loss.backward()\n",
            "        with torch.autograd.detect_anomaly(check_nan=True):\n            loss.backward()\n",
        ),
        counted=True,
    ),
    mistake(
        "trainer",
        "gradients-set-to-zero",
        ("train.py", "zero_grad()", "zero_grad(set_to_none=False)"),
        counted=True,
    ),
    mistake(
        "experts",
        "every-expert-on-every-row",
        (
            "model.py",
            "            output.index_add_(0, index, expert(rows[index]) * weights[index, None])\n",
            "            output.index_add_(0, index, expert(rows)[index] * weights[index, None])\n",
        ),
        counted=True,
    ),
    mistake(
        "graph",
        "messages-in-float64",
        (
            "model.py",
            "        gathered = torch.zeros_like(nodes).index_add_(0, target, messages)\n",
            "        gathered = torch.zeros_like(nodes).double().index_add_(0, target, messages.double()).float()\n",
        ),
        counted=True,
    ),
    mistake(
        "diffusion",
        "embedding-in-every-block",
        (
            "model.py",
            "self.time(times)[:, :, None, None]",
            "self.time(embedding(times, 64))[:, :, None, None]",
        ),
        ("model.py", "        times = embedding(times, 64)\n", ""),
        counted=True,
    ),
    # What only the clock can tell.
    mistake(
        "ranker",
        "stopwords-in-a-list",
        (
            "features.py",
            'STOPWORDS = frozenset(f"word{number}" for number in range(0, 4000, 7))',
            'STOPWORDS = [f"word{number}" for number in range(0, 4000, 7)]',
        ),
        counted=False,
    ),
    mistake(
        "ranker",
        "message-of-all-texts",
        (
            "model.py",
            "        ids = torch.tensor(",
            '        self.message = f"ranking {texts * 8}"\n        ids = torch.tensor(',
        ),
        counted=False,
    ),
    mistake(
        "speech",
        "exact-gelu",
        ("model.py", ', approximate="tanh")', ")"),
        counted=False,
    ),
    mistake(
        "speech",
        "sleep-until-ready",
        ("model.py", '"""\n\nimport torch\n', '"""\n\nimport time\n\nimport torch\n'),
        (
            "model.py",
            "        hidden = self.frontend(frames)\n",
            "        time.sleep(0.0005)\n        hidden = self.frontend(frames)\n",
        ),
        counted=False,
    ),
    mistake(
        "vision",
        "bilinear-upsampling",
        ("model.py", 'mode="nearest"', 'mode="bilinear"'),
        counted=False,
    ),
    mistake(
        "vision",
        "anchors-in-every-log-line",
        (
            "postprocess.py",
            'return {"boxes": len(found)}',
            'return {"boxes": len(found), "anchors": ANCHORS}',
        ),
        (
            "postprocess.py",
            "import torch\n",
            "import torch\n\nANCHORS = [[x, x + 1] for x in range(2000)]\n",
        ),
        counted=False,
    ),
    mistake(
        "vision",
        "sort-for-topk",
        (
            "postprocess.py",
            "    best, index = flat.topk(count, dim=1)\n",
            "    best, index = (part[:, :count] for part in flat.sort(dim=1, descending=True))\n",
        ),
        counted=False,
    ),
    mistake(
        "decoder",
        "collect-after-every-call",
        ("model.py", '"""\n\nimport torch\n', '"""\n\nimport gc\n\nimport torch\n'),
        (
            "model.py",
            "        return torch.stack(output, dim=1)\n",
            "        gc.collect()\n        return torch.stack(output, dim=1)\n",
        ),
        counted=False,
    ),
    mistake(
        "trainer",
        "settings-logged-every-step",
        ("train.py", '"""\n\nimport torch\n', '"""\n\nimport json\n\nimport torch\n'),
        (
            "train.py",
            "\n\nclass Training:\n",
            '\n\nSETTINGS = {f"layer{n}": [n] * 40 for n in range(400)}\n\n\nclass Training:\n',
        ),
        (
            "train.py",
            "        return loss.detach()\n",
            "        self.line = json.dumps(SETTINGS, sort_keys=True)\n        return loss.detach()\n",
        ),
        counted=False,
    ),
    mistake(
        "experts",
        "order-rebuilt",
        (
            "model.py",
            "        weights, chosen = self.router",
            "        self.order = sorted(range(40000), reverse=True)\n        weights, chosen = self.router",
        ),
        counted=False,
    ),
    mistake(
        "experts",
        "checksum-of-the-weights",
        ("model.py", '"""\n\nimport torch\n', '"""\n\nimport zlib\n\nimport torch\n'),
        (
            "model.py",
            "        output = torch.zeros_like(rows)\n",
            "        self.checksum = zlib.adler32(bytes(600_000))\n        output = torch.zeros_like(rows)\n",
        ),
        counted=False,
    ),
    mistake(
        "graph",
        "folder-listed-every-call",
        ("model.py", '"""\n\nimport torch\n', '"""\n\nimport os\n\nimport torch\n'),
        (
            "model.py",
            "        nodes, source, target = graph\n",
            '        self.stop = "stop" in os.listdir("/usr/bin")\n        nodes, source, target = graph\n',
        ),
        counted=False,
    ),
    mistake(
        "diffusion",
        "onednn-switched-off",
        (
            "model.py",
            "\n\ndef embedding(",
            "\ntorch.backends.mkldnn.set_flags(False)\n\n\ndef embedding(",
        ),
        counted=False,
    ),
)
