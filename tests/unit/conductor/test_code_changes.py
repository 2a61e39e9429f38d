"""Which places of the code changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.conductor.code.code_changes import code_changes, imported_packages, reads_code, same_code
from tests.each import each

MODEL = '''"""A model."""
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        """Return it."""
        x = self.first(x)
        if x.sum() > 0:
            x = x + 1
        return self.last(x)


@torch.no_grad()
def prepare(raw):
    return raw / 255
'''
FORWARD, PREPARE = ("forward", 6, 11), ("prepare", 14, 16)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("x = x + 1", "x = x.double().float() + 1", [(10, 10, *FORWARD)]),
        ("return raw / 255", "raw = raw * 1\n    return raw / 255", [(16, 16, "prepare", 14, 17)]),
        ("return raw / 255", "rows = [row / 255 for row in raw]\n    return rows", [(16, 17, "prepare", 14, 17)]),
        ("return raw / 255", "return raw / 254  # new", [(16, 16, *PREPARE)]),
        ("return raw / 255", "return (\n        raw\n        / 254\n    )", [(16, 19, "prepare", 14, 19)]),
        ("return raw / 255", "return  raw / 255  # the same", []),
        ("        x = self.first(x)\n", "", [(8, 8, "forward", 6, 10)]),
        ("if x.sum() > 0:", "while x.sum() > 0:", [(9, 10, *FORWARD)]),
        ("@torch.no_grad()\n", "", [(14, 14, "prepare", 14, 15)]),
        ("import torch", "import torch\nWIDTH = 8", [(3, 3, None, None, None)]),
        ("import torch", "import (", []),
    ],
)
def test_code_changes__one_change__its_lines_and_the_function_around_it(
    tmp_path: Path, old: str, new: str, found: list[tuple[object, ...]]
) -> None:
    base, head = tmp_path / "base", tmp_path / "head"
    for folder, text in ((base, MODEL), (head, MODEL.replace(old, new))):
        folder.mkdir()
        (folder / "model.py").write_text(text)
    changes = code_changes(base, head, ["model.py", "not_there.py"])
    assert [(c.first, c.last, c.function, c.begins, c.ends) for c in changes] == found


def test_code_changes__new_file__every_function_of_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    changes = code_changes(tmp_path / "nowhere", tmp_path, ["model.py"])
    assert {(c.function, c.begins) for c in changes} == {(None, None), ("forward", 6), ("prepare", 14)}


def test_code_changes__as_long_as_a_repository__places_of_all_and_text_of_the_first(tmp_path: Path) -> None:
    functions = [f"def f{n}(x):\n" + "".join(f"    x = x + {i}\n" for i in range(99)) for n in range(40)]
    (tmp_path / "model.py").write_text("\n".join(functions))
    changes = code_changes(tmp_path / "nowhere", tmp_path, ["model.py"])
    assert [change.function for change in changes] == [f"f{n}" for n in range(40)]
    assert [len(change.text) for change in changes] == [100] * 20 + [0] * 20
    assert [len(change.chains) for change in changes] == [1] * 20 + [0] * 20


def test_code_changes__code_too_deep_to_compare__nothing(tmp_path: Path) -> None:
    for name, number in (("base", 1), ("head", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.py").write_text(f"def f(x):\n    return {' + '.join(['x'] * 3000)} + {number}\n")
    assert code_changes(tmp_path / "base", tmp_path / "head", ["model.py"]) == []


@each(
    "before, after, same",
    [
        ("x = 1\n", "# a comment\nx = (  1 )\n", True),
        ('def f():\n    """One."""\n    return 1\n', 'def f():\n    """Two."""\n    return 1\n', True),
        ("x = 'ab'\n", "x = 'a' 'b'\n", True),
        ("x = 1\n", "x = True\n", False),
        ("x = 0.0\n", "x = -0.0\n", False),
        ("x = 1\n", "x = 1\nx\n", False),
        # torch.jit takes types from comments.
        (
            "def f(x):\n    # type: (int) -> int\n    return x\n",
            "def f(x):\n    # type: (float) -> int\n    return x\n",
            False,
        ),
        ("no python\n", "no python\n", False),
        ("x = 1\0\n", "x = 1\0\n", False),
        ("(" * 5000, "(" * 5000, False),
    ],
)
def test_same_code__what_runs_decides(before: str, after: str, same: bool) -> None:
    assert same_code(before.encode(), after.encode()) is same


def test_same_code__larger_than_a_person_writes__not_compared() -> None:
    large = b"x = 1\n" * 200_000
    assert not same_code(large, large)


@each(
    "line, reads",
    [
        ("    return cls.__doc__ or ''", True),
        ("text = inspect.getsource(tool)", True),
        ("for name, value in vars(module).items():", True),
        ("class Signature(metaclass=Meta):", True),
        ("class Model(torch.nn.Module):", False),
        ("    return Model().eval()", False),
        ("astronomy = inspected(directory)", False),
    ],
)
def test_reads_code__line_of_code__told(line: str, reads: bool) -> None:
    assert reads_code(line) is reads


@each(
    "line, packages",
    [
        ("import torch", {"torch"}),
        ("import torch.nn as nn, dspy", {"torch", "dspy"}),
        ("    from langchain.tools import tool", {"langchain"}),
        ("import os; import pydantic  # later", {"os", "pydantic"}),
        ("from . import ops", set()),
        ("important = 1", set()),
    ],
)
def test_imported_packages__line_of_code__their_top_level_names(line: str, packages: set[str]) -> None:
    assert imported_packages(line) == packages
