"""Checkouts of the lab's models, and heads of each that differ in code but not in
speed.

A head calls the same operators in the same order on the same data; what differs is what
a refactoring leaves behind: functions nobody calls, another order, other names, more
imports, docstrings, another number of lines and modules.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from models import SOURCES

VARIANTS = 8  # heads that differ in code; number 0 is the base itself


_HEADER = '"""The model."""\n\n'
_IMPORTS = "import torch\nfrom torch import nn\nfrom torch.nn import functional\n\n"
_MORE_IMPORTS = ("csv", "decimal", "fractions", "html.parser", "http.cookies", "mailbox", "plistlib", "sqlite3", "statistics",
                 "tabnanny", "wave", "xml.dom.minidom")  # fmt: skip
_WORDS = (
    "alpha",
    "beam",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "gamma",
    "harbour",
    "iris",
    "jetty",
    "kernel",
    "lattice",
)


def write_checkouts(folder: Path, workload: str, *, seed: int) -> list[Path]:
    """Write the base and every variant; return their folders, the base first.

    The same seed writes the same text.
    """
    roots = []
    for variant in range(VARIANTS + 1):
        root = folder / f"{workload}-{variant}"
        root.mkdir(parents=True)
        for name, text in modules(workload, variant, seed=seed).items():
            (root / name).write_text(text)
        roots.append(root)
    return roots


def write_harness(
    folder: Path,
    workload: str,
    *,
    dead_functions: int = 0,
    objects: int = 0,
    seed: int = 0,
) -> Path:
    """Write the workload file and return its folder; with a prelude that runs first
    where anything dead is asked for.
    """
    source = SOURCES[workload]
    folder.mkdir(parents=True, exist_ok=True)
    beside = f"\n\n{source.beside}" if source.beside else ""
    text = f"""import model
import torch

from perfgate import Workload


def build(device):
    return model.make().to(device)


def inputs(batch, seed{source.asked}):
    generator = torch.Generator().manual_seed(seed)
    return {source.inputs}
{beside}

workload = Workload(build=build, inputs=inputs, batch={source.batch}{source.options})
"""
    if dead_functions or objects:
        lot = random.Random(seed)
        (folder / "prelude.py").write_text(
            dead_code(lot, dead_functions) + dead_objects(lot, objects)
        )
        text = f"import prelude\n{text}"
    (folder / "workload.py").write_text(text)
    return folder


def modules(workload: str, variant: int, *, seed: int) -> dict[str, str]:
    """Return the modules of one checkout by file name. Variants 1 to 7 change one thing
    each, 8 all of them.
    """
    lot = random.Random(f"{seed}/{workload}/{variant}")
    source = SOURCES[workload]
    parts = list(source.definitions)
    header, aside = _HEADER, ""
    changes = range(1, VARIANTS) if variant == VARIANTS else (variant,)
    if 1 in changes:
        at = lot.randrange(len(parts) + 1)
        parts[at:at] = [dead_code(lot, lot.randrange(10, 80))]
    if 2 in changes:
        parts = _other_order(lot, parts)
    imports = _IMPORTS
    if 3 in changes:
        imports = (
            "".join(f"import {name}\n" for name in lot.sample(_MORE_IMPORTS, 5))
            + imports
        )
    if 4 in changes:
        header = f'"""The model.\n\n{_prose(lot, 60)}\n"""\n\n'
        parts = [_documented(lot, part) for part in parts]
    if 5 in changes:
        parts = [_with_attributes(lot, part) for part in parts]
    if 6 in changes:
        parts = _renamed(lot, parts, source.names)
    if 7 in changes:
        aside = imports + "\n\n".join(
            part for part in parts if "def make()" not in part
        )
        names = sorted(set(re.findall(r"^(?:class|def) (\w+)", aside, re.MULTILINE)))
        parts = [
            f"from layers import {', '.join(names)}\n",
            *(part for part in parts if "def make()" in part),
        ]
    found = {"model.py": header + imports + "\n\n".join(parts)}
    return {**found, "layers.py": _HEADER + aside} if aside else found


def dead_code(lot: random.Random, count: int) -> str:
    """Return ``count`` functions that nobody calls."""
    return "\n\n".join(_dead_function(lot, number) for number in range(count)) + "\n"


def dead_objects(lot: random.Random, count: int) -> str:
    """Return code that keeps ``count`` objects of mixed sizes alive."""
    sizes = [lot.choice((24, 40, 56, 120, 300, 500, 1200, 5000)) for _ in range(count)]
    return f"kept = [bytearray(size) for size in {sizes}]\nnamed = [{{str(size): [size]}} for size in {sizes}]\n"


def _dead_function(lot: random.Random, number: int) -> str:
    name = f"{lot.choice(_WORDS)}_{lot.choice(_WORDS)}_{number}"
    lines = [
        f"    {lot.choice(_WORDS)} = [{lot.random():.6f}, {lot.choice(_WORDS)!r}]"
        for _ in range(lot.randrange(1, 12))
    ]
    return "\n".join(
        [
            f"def {name}({lot.choice(_WORDS)}=None):",
            *lines,
            f"    return {lot.random():.6f}\n",
        ]
    )


def _other_order(lot: random.Random, parts: list[str]) -> list[str]:
    shuffled = parts[:]
    while shuffled == parts:
        lot.shuffle(shuffled)
    return shuffled


def _prose(lot: random.Random, words: int) -> str:
    return " ".join(lot.choice(_WORDS) for _ in range(words)).capitalize() + "."


def _documented(lot: random.Random, part: str) -> str:
    def add(match: re.Match[str]) -> str:
        indent = match["indent"] + "    "
        blank = "\n" * lot.randrange(3)
        return f'{match[0]}\n{indent}"""{_prose(lot, lot.randrange(8, 40))}"""{blank}'

    return re.sub(r"^(?P<indent> *)(?:class|def) .*:$", add, part, flags=re.MULTILINE)


def _with_attributes(lot: random.Random, part: str) -> str:
    lines = "".join(
        f"\n        self.{word}_note = {lot.random():.6f}"
        for word in lot.sample(_WORDS, 6)
    )
    constants = "".join(
        f"    {word.upper()} = {lot.random():.6f}\n" for word in lot.sample(_WORDS, 4)
    )
    part = part.replace("super().__init__()", "super().__init__()" + lines)
    return re.sub(
        r"^(class .*:\n)",
        lambda match: match[1] + constants + "\n",
        part,
        flags=re.MULTILINE,
    )


def _renamed(lot: random.Random, parts: list[str], names: tuple[str, ...]) -> list[str]:
    new = {name: f"{lot.choice(_WORDS)}_{name}" for name in names}
    pattern = re.compile(rf"\b({'|'.join(names)})\b")
    return [pattern.sub(lambda match: new[match[1]], part) for part in parts]
