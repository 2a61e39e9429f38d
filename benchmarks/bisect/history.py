"""A scratch repository of many commits, one of which makes a model 4 % slower, among
broken, noisy and irrelevant ones.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

Cause = Literal["operators", "time"]
Kind = Literal["plain", "slow", "broken", "noisy", "irrelevant"]
SPECIAL: tuple[Kind, ...] = ("broken", "noisy", "irrelevant")
# Operators of a call, and rounds of a key derivation: a loop in C of which no counter
# sees how often it turns.
OPERATORS, ROUNDS = 100, 1_000
SLOWER = 1.04

MODEL = """
import hashlib
import random

import torch

NUMBER = {number}


class Net(torch.nn.Module):
    def forward(self, x):
        for _ in range({operators}):
            x = x + 1
        {rounds}
{noise}        return x
"""
DERIVE = 'hashlib.pbkdf2_hmac("sha256", b"key", b"salt", {rounds})'
# Every fourth call takes longer by a third or so: the fast path stays.
NOISE = "        if random.random() < 0.25:\n            for _ in range(10_000):\n                pass\n"
BROKEN = 'raise RuntimeError("commit {number} does not build")\n'
WORKLOAD = """
import torch
from model import Net

from perfgate import Workload

net = Workload(build=lambda device: Net().eval(), inputs=lambda batch, seed: torch.zeros(batch, 16), batch=4)
"""
# What exact counters show needs no more than one look, however busy the machine is. For
# a time the defaults hold.
SETTINGS: dict[Cause, str] = {
    "operators": """
[gate]
strict = true
looks = [8]
checklist_budget = 0
aa_pairs = 5
quads = 2
block_seconds = 0.002
[gate.tolerance]
"latency.*" = 1.0
"throughput.*" = 1.0
"hardware.*" = 1.0
""",
    "time": "\n[gate]\nchecklist_budget = 0\n",
}


class History(NamedTuple):
    """The repository, its commits from the good one on, the kind of each, and the place
    of the slow one.
    """

    root: Path
    commits: Sequence[str]
    kinds: Sequence[Kind]
    culprit: int


def make_history(
    root: Path, cause: Cause, *, count: int, special: int, seed: int
) -> History:
    """``special`` of the ``count`` commits after the first are broken (in rows of up to
    three), noisy or irrelevant.
    """
    chance = random.Random(seed)
    kinds: list[Kind] = ["plain"] * (count + 1)
    culprit = chance.randrange(1, count + 1)
    kinds[culprit] = "slow"
    for number, kind in enumerate(SPECIAL):
        _scatter(
            kinds,
            kind,
            special * (number + 1) // len(SPECIAL) - special * number // len(SPECIAL),
            chance,
        )
    root.mkdir(parents=True)
    _git(root, "init", "--quiet", "--initial-branch=main")
    _git(root, "fast-import", "--quiet", feed="".join(_stream(kinds, culprit, cause)))
    _git(root, "reset", "--quiet", "--hard", "main")
    return History(
        root, _git(root, "rev-list", "--reverse", "main").split(), kinds, culprit
    )


def commit_all(root: Path, files: Mapping[str, str]) -> None:
    """Make a repository of one commit."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    _git(root, "init", "--quiet", "--initial-branch=main")
    _git(root, "add", "--all")
    _git(
        root,
        "-c",
        "user.name=Ada",
        "-c",
        "user.email=ada@example.org",
        "commit",
        "--quiet",
        "--message",
        "the model",
    )


def _scatter(kinds: list[Kind], kind: Kind, count: int, chance: random.Random) -> None:
    """Turn so many plain commits into others; the first and the last one stay."""
    left = count
    while left:
        start = chance.randrange(1, len(kinds) - 1)
        row = range(
            start,
            min(
                len(kinds) - 1,
                start + (chance.randrange(1, 4) if kind == "broken" else 1),
            ),
        )
        for place in row:
            if left and kinds[place] == "plain":
                kinds[place], left = kind, left - 1


def _stream(kinds: Sequence[Kind], culprit: int, cause: Cause) -> Iterator[str]:
    for number, kind in enumerate(kinds):
        files = (
            {"README.md": f"{number}\n"}
            if kind == "irrelevant"
            else {"model.py": _model(number, kind, culprit, cause)}
        )
        if number == 0:
            config = f'project = "scratch"\ndevice = "cpu"\nworkload = "perf/workload.py:net"\n{SETTINGS[cause]}'
            files |= {"perfgate.toml": config, "perf/workload.py": WORKLOAD}
        subject = f"{kind} {number}"
        yield f"commit refs/heads/main\ncommitter Ada <ada@example.org> {1_700_000_000 + number} +0000\n"
        yield f"data {len(subject)}\n{subject}\n"
        for name, text in files.items():
            yield f"M 100644 inline {name}\ndata {len(text)}\n{text}\n"


def _model(number: int, kind: Kind, culprit: int, cause: Cause) -> str:
    if kind == "broken":
        return BROKEN.format(number=number)
    more = SLOWER if number >= culprit else 1.0
    operators = round(OPERATORS * more) if cause == "operators" else 1
    rounds = DERIVE.format(rounds=round(ROUNDS * more)) if cause == "time" else "pass"
    return MODEL.format(
        number=number,
        operators=operators,
        rounds=rounds,
        noise=NOISE if kind == "noisy" else "",
    )


def _git(root: Path, *arguments: str, feed: str | None = None) -> str:
    environment = {
        **os.environ,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    done = subprocess.run(
        ["git", *arguments],
        cwd=root,
        env=environment,
        input=feed,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout
