"""Which changed statements are one chain: what passes values on is, what only stands beside it is not."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from perfgate.conductor.code.code_changes import code_changes
from perfgate.system.folders import PACKAGE


def chains(tmp_path: Path, body: str) -> list[list[int]]:
    """The lines of each chain of a function whose whole body is new, counted from 1."""
    for folder, lines in (("base", "pass"), ("head", body)):
        (tmp_path / folder).mkdir()
        text = f"def forward(self, x, y):\n{textwrap.indent(textwrap.dedent(lines), '    ')}\n"
        (tmp_path / folder / "model.py").write_text(text)
    (change,) = code_changes(tmp_path / "base", tmp_path / "head", ["model.py"])
    return [[first - 1 for first, _ in chain] for chain in change.chains]


@pytest.mark.parametrize(
    "body",
    [
        "scores = x @ x.t()\nweights = scores.softmax(-1)\nreturn weights @ x",
        "x = x.double()\nx = x.float()",
        "x.mul_(2)\nreturn x.sum()",
        "x += 1\nx = x.clone()",
        "self.kept = x + 1\nreturn self.kept.relu()",
        "rows = [row + 1 for row in x]\nreturn torch.stack(rows)",
        "for row in x.relu():\n    row.neg_()",
        "a, b = x.chunk(2)\na = a.exp()\nb = b.sin()",
        "buffer[0] = x.relu()\nreturn buffer.sum()",
        "(a := x.relu())\nreturn a.neg()",
    ],
)
def test_chains__each_line_computes_with_the_last__one(tmp_path: Path, body: str) -> None:
    assert len(chains(tmp_path, body)) == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = x.double()\nself.log.append(y.clone())", [[1], [2]]),
        ("a = x.relu()\nb = y.neg()\nc = a.exp()", [[1, 3], [2]]),
        ("scale = 2.0\na = x * scale\nb = y * scale", [[1], [2], [3]]),
        ("for i in range(3):\n    a = x[i].clone()\n    b = y[i].double()", [[1], [2], [3]]),
        ("a, b = [], []\na.append(x.relu())\nb.append(y.neg())", [[2], [3]]),
        ("for i in range(4):\n    a = x.relu()\n    # both\n    b = y.neg()", [[1], [2], [4]]),
        ("out.append(x.relu())\nout.append(y.neg())", [[1], [2]]),
        ("a = [row + 1 for row in x]\nb = [row * 2 for row in y]", [[1], [2]]),
        ("a = x.relu()\nb = torch.zeros(a.shape)", [[1], [2]]),
        ("x = x.relu()\nx = y.neg()\nz = x.exp()", [[1], [2, 3]]),
        ("self.first = x.relu()\nself.second = y.neg()", [[1], [2]]),
    ],
)
def test_chains__lines_that_only_stand_together__each_its_own(
    tmp_path: Path, body: str, expected: list[list[int]]
) -> None:
    assert chains(tmp_path, body) == expected


def test_chains__lists_that_are_filled_and_read__what_fills_them_and_what_reads(tmp_path: Path) -> None:
    body = "out = []\nout.append(x.relu())\nout.append(y.neg())\nreturn torch.cat(out)"
    assert chains(tmp_path, body) == [[2, 3, 4]]


def test_chains__loop_that_holds_one_chain_alone__begins_it(tmp_path: Path) -> None:
    body = "for i in range(4):\n    # of one row\n    row = x[i].relu()\n\n    out[i] = row.neg()"
    assert chains(tmp_path, body) == [[1, 3, 5]]


def test_chains__loop_with_a_line_that_did_not_change__stands_for_itself(tmp_path: Path) -> None:
    head = "def forward(x, y):\n    for i in range({}):\n        a = x.relu()\n        b = y.{}()\n"
    for folder, text in (("base", head.format(2, "neg")), ("head", head.format(4, "exp"))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.py").write_text(text)
    changes = code_changes(tmp_path / "base", tmp_path / "head", ["model.py"])
    assert [change.chains for change in changes] == [[[(2, 4)]], [[(4, 4)]]]


def test_chains__attention_of_the_demo__is_one_with_every_line_that_computes() -> None:
    (change,) = [
        c for c in code_changes(PACKAGE / "demo" / "main", PACKAGE / "demo" / "mistake", ["ranker.py"]) if c.function
    ]
    assert [[first for first, _ in chain] for chain in change.chains] == [[24, 25, 26, 27, 28, 29]]
    assert (
        change.text[2]
        == "scores = query[:, head] @ key[:, head].transpose(1, 2).contiguous() / math.sqrt(width // self.heads)"
    )
