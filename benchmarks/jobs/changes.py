"""The changes that the table gates: equal code, slowdowns of known size, and ten causes
of ten kinds.

A cause is right if the title or the first cause of the comment names a line of the
change, or one of ``names``.
"""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """A piece of a file of a program that is replaced once."""

    name: str
    program: str
    file: str
    old: str
    new: str
    names: tuple[str, ...] = ()


# The step of a decoder of 20 layers takes longer by nearly a twentieth with each layer
# more.
FIVE_PERCENT = Change(
    "+5 %", "served", "model.py", "= 4096, 64, 4, 20, 512", "= 4096, 64, 4, 21, 512"
)
FOURTEEN_PERCENT = Change(
    "+14 %", "served", "model.py", "= 4096, 64, 4, 20, 512", "= 4096, 64, 4, 23, 512"
)
EQUAL = Change(
    "equal",
    "served",
    "sampling.py",
    "PENALTY = 0.5\n",
    "PENALTY = 0.5\nUNUSED = 0.25\n",
)
EQUAL_COMMAND = Change(
    "equal", "command", "bench.py", "ROUNDS, LINES", "UNUSED = 1\nROUNDS, LINES"
)
SLOWER_COMMAND = Change(
    "+14 %",
    "command",
    "bench.py",
    "        parse(lines)\n",
    "        parse(lines + lines[:2100])\n",
)

CAUSES = (
    Change(
        "an operator more",
        "served",
        "sampling.py",
        "    return penalize(scores, written).argmax(dim=-1).tolist()\n",
        "    ordered = penalize(scores, written).sort(dim=-1, descending=True)\n    return ordered.indices[:, 0].tolist()\n",
        ("`aten::sort`", "`choose`"),
    ),
    Change(
        "a slower operator",
        "served",
        "model.py",
        "        reach = mask.shape[-1]\n",
        "        reach = CONTEXT\n        mask = functional.pad(mask, (0, CONTEXT - mask.shape[-1]))\n",
        ("`Attention.forward`", "`aten::scaled_dot_product_attention`"),
    ),
    Change(
        "a loop in Python",
        "served",
        "sampling.py",
        "        row[tokens[-8:]] = PENALTY\n",
        "        for token in range(scores.shape[1]):\n"
        "            if token in tokens[-8:]:\n                row[token] = PENALTY\n",
        ("`penalize`",),
    ),
    Change(
        "a sleep",
        "served",
        "engine.py",
        "            self.admit()\n            self.step()\n",
        "            self.admit()\n            time.sleep(0.003)\n            self.step()\n",
        ("`Engine.run`",),
    ),
    Change(  # the engine waits wherever it takes the lock
        "a lock",
        "served",
        "engine.py",
        "                self.most = max(self.most, len(self.engine.running))\n            time.sleep(self.seconds)\n",
        "                self.most = max(self.most, len(self.engine.running))\n                time.sleep(self.seconds)\n",
        ("`Watch.run`", "`Engine.admit`", "`Engine.step`", "`Engine.finish`"),
    ),
    Change(
        "a copy more",
        "served",
        "model.py",
        "        mixed = functional",
        "        self.keys = self.keys.clone()\n        mixed = functional",
        ("`Attention.forward`", "`aten::clone`", "`aten::copy_`"),
    ),
    Change(
        "a larger allocation",
        "served",
        "sampling.py",
        "    lowered = torch.zeros(scores.shape[0], scores.shape[1])\n",
        "    lowered = torch.zeros(256, 8, scores.shape[1])[0, : scores.shape[0]]\n",
        ("`penalize`", "`aten::zeros`", "`aten::fill_`", "`aten::zero_`"),
    ),
    Change(
        "a slow tokenizer",
        "served",
        "tokenizer.py",
        "        pieces.append(hash_of(word[at : at + size]))\n",
        "        pieces = [*pieces, hash_of((word[:at] * 999 + word[at : at + size])[-1500:])]\n",
        ("`encode_word`", "`hash_of`"),
    ),
    Change(
        "one rank sends",
        "trained",
        "train.py",
        "    return accuracy(scores.detach(), labels) if rank == 0 else None\n",
        "    shown = scores.detach().repeat(1, 40)\n"
        "    dist.send(shown, 0) if rank else dist.recv(shown, 1)\n"
        "    return accuracy(scores.detach(), labels) if rank == 0 else None\n",
        ("`send`", "`recv`", "`report`"),
    ),
    Change(
        "one rank reads slowly",
        "trained",
        "data.py",
        "    data = line.encode()[rank : rank + LENGTH]\n",
        "    for _ in range(12 * rank):\n        line = ''.join(reversed(line))\n"
        "    data = line.encode()[rank : rank + LENGTH]\n",
        ("`parse`", "`rank 1`"),
    ),
)
