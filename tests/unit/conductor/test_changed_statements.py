"""Which statements of a file changed, and which lines show that they ran."""

from __future__ import annotations

import ast
import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.conductor.code.changed_statements import (
    ChangedStatement,
    UncomparableError,
    changed_statements,
    names_of_functions,
)
from perfgate.protocol import LOADED

# Every statement of it runs when it is imported and ``main`` is called, but for those marked.
EXECUTED = '''"""A module."""
import contextlib
import functools
from dataclasses import dataclass, field

LIMIT = 3
TABLE = {name: index for index, name in enumerate("abc")}


@dataclass
class Options:
    """Options."""

    width: int = 4
    names: list = field(default_factory=lambda: ["a", "b"])

    @property
    def area(self):
        return self.width * len(
            self.names
        )


class Base:
    kind = "base"

    def __init__(self, size=LIMIT, *, scale=2.0):
        self.size = size
        self.scale = scale

    def __call__(self, x):
        return self.forward(x)

    def forward(self, x):
        raise NotImplementedError


class Model(Base):
    def forward(self, x):
        total = 0
        for index in range(self.size):
            if index % 2:
                total += x * index
            elif index > 100:
                total -= 1  # never
            else:
                total += 1
        while total > 50:
            total -= 7
            if total < 20:
                break
        else:
            total += 2
        try:
            value = TABLE["z"]
        except KeyError as error:
            value = len(str(error))
        finally:
            total += 1
        with contextlib.suppress(ValueError):
            value = int("12")
        return total + value


@functools.lru_cache(maxsize=4)
def cached(n, step=(1, 2)):
    squares = [
        i * i
        for i in range(n)
        if i % step[0] == 0
    ]
    return sum(squares)


def generate(n):
    count = yield 0
    for i in range(n):
        assert i >= 0, "negative"
        count = yield (
            i,
            count,
        )
    return count


def choose(value):
    match value:
        case int() if value > 2:
            return "large"
        case [first, *rest]:
            return first, rest
        case _:
            pass
    return None


async def wait(value):
    async with contextlib.AsyncExitStack():
        del value
    return [one async for one in numbers()]


async def numbers():
    yield 1
    yield 2


def main():
    import asyncio

    model = Model(5, scale=1.0)
    results = [model(2), Options().area, cached(6)]
    results.extend(generate(2))
    results += [choose(3), choose([1, 2]), choose("x")]
    results.append(asyncio.run(wait(1)))
    add = lambda a, b=2: (
        a + b
    )
    results.append(add(1))
    global CALLS
    CALLS = len(results)
    return results
'''
WANTED = 500

# Imports each file as a module and runs it, all watched by one recorder.
RUNNER = """
import importlib.util, json, socket, sys, warnings
from perfgate.conductor.code.executed_lines import collected_lines
from perfgate.measuring.worker.executed import LineRecorder
warnings.simplefilter("ignore")
root, files = sys.argv[1], json.load(open(sys.argv[2]))
with collected_lines() as (reports, lines):
    recorder = LineRecorder(files, [], [root], reports)
    recorder.start()
    for index, file in enumerate(files):
        spec = importlib.util.spec_from_file_location(f"mutant_{index}", file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"mutant_{index}"] = module
        try:
            spec.loader.exec_module(module)
            module.main()
        except BaseException:
            pass
        del sys.modules[f"mutant_{index}"]
    recorder.finish()
print(json.dumps([sorted(lines), sorted(recorder.doubts)]))
"""


def _record(folder: Path, sources: list[str]) -> list[set[int]]:
    """The executed lines of each source."""
    files = []
    for number, source in enumerate(sources):
        file = folder / f"mutant_{number}.py"
        file.write_text(source)
        files.append(str(file))
    (folder / "files.json").write_text(json.dumps(files))
    ran = subprocess.run(
        [sys.executable, "-c", RUNNER, str(folder), str(folder / "files.json")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    lines, doubts = json.loads(ran.stdout)
    assert doubts == []
    found: list[set[int]] = [set() for _ in files]
    for index, line in lines:
        found[index].add(line)
    return found


def _mutants(source: str, executed: set[int]) -> Iterator[str]:
    """Versions of the source in which one executed statement differs."""
    tree = ast.parse(source)
    count = len(_places(tree, executed))
    for kind in range(_KINDS):
        for number in range(count):
            changed = copy.deepcopy(tree)
            block, position = _places(changed, executed)[number]
            if not _mutate(kind, block, position) or not block:
                continue
            mutant = ast.unparse(ast.fix_missing_locations(changed))
            try:
                compile(mutant, "mutant", "exec")
            except SyntaxError:
                continue
            yield mutant


def _places(tree: ast.Module, executed: set[int]) -> list[tuple[list[ast.stmt], int]]:
    """Each executed statement, as its block and its position in it."""
    blocks = [
        getattr(node, name)
        for node in ast.walk(tree)
        for name in ("body", "orelse", "finalbody")
        if hasattr(node, name)
    ]
    return [
        (block, position)
        for block in blocks
        if isinstance(block, list)
        for position, child in enumerate(block)
        if child.lineno in executed
    ]


_KINDS = 11


_WRAPPERS = {
    2: "if True:\n    pass",
    3: "for _ in range(2):\n    pass",
    4: "try:\n    pass\nfinally:\n    spent = 1",
    10: "with contextlib.nullcontext():\n    pass",
}
_INSERTED = {1: "spent = [0] * 10", 9: "sum(range(100))"}
_ENDS = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def _mutate(kind: int, block: list[ast.stmt], position: int) -> bool:
    """Change one statement in one of several ways; False if that way says nothing about it."""
    statement = block[position]
    is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    if is_docstring or isinstance(statement, (ast.Pass, ast.Global)):
        return False
    if kind in _WRAPPERS:
        block[position] = ast.parse(_WRAPPERS[kind]).body[0]
        block[position].body = [statement]  # type: ignore[attr-defined]
        return True
    if kind in _INSERTED:
        block.insert(position, ast.parse(_INSERTED[kind]).body[0])
        return True
    if kind in {5, 6}:
        return _change_constant(statement) if kind == 5 else _change_operator(statement)
    if kind == 0:
        del block[position]
        return True
    return _repeat_or_swap(kind, block, position)


def _repeat_or_swap(kind: int, block: list[ast.stmt], position: int) -> bool:
    statement = block[position]
    if isinstance(statement, _ENDS):  # nothing after it runs
        return False
    if kind == 8:
        block.insert(position + 1, copy.deepcopy(statement))
        return True
    if position + 1 < len(block):
        block[position], block[position + 1] = block[position + 1], block[position]
        return True
    return False


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without those of the statements inside it."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield from ast.walk(child)


def _change_constant(statement: ast.stmt) -> bool:
    for node in _own_nodes(statement):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            node.value = node.value + 1
            return True
    return False


def _change_operator(statement: ast.stmt) -> bool:
    for node in _own_nodes(statement):
        if isinstance(node, ast.BinOp):
            node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            return True
        if isinstance(node, ast.Compare):
            node.ops = [ast.NotEq()]
            return True
    return False


def _ran(statements: list[ChangedStatement], lines: set[int]) -> bool:
    # A definition that ran may be read, so a loaded docstring or a new function is looked at separately.
    return any(not (statement.lines | statement.definition).isdisjoint(lines) for statement in statements)


@pytest.mark.slow
def test_changed_statements__500_mutants_of_executed_lines__none_is_called_not_executed(tmp_path: Path) -> None:
    source = ast.unparse(ast.parse(EXECUTED))
    (base_lines,) = _record(tmp_path, [source])
    mutants = list(_mutants(source, base_lines))[: WANTED + 100]
    assert len(mutants) >= WANTED
    of_mutants = _record(tmp_path, mutants)
    missed = []
    for mutant, lines in zip(mutants, of_mutants):
        removed, added = changed_statements(source.encode(), mutant.encode())
        if not (_ran(removed, base_lines) or _ran(added, lines)):
            missed.append((removed, added, mutant))
    assert missed == []


MODEL = '''import torch


class Model(torch.nn.Module):
    """A model."""

    def forward(self, x):
        """Return it."""
        if x.sum() > 0:
            return self.rare(x)
        return x

    def rare(self, x):
        return x + 1


def prepare(raw, scale=255):
    return raw / scale
'''


@pytest.mark.parametrize(
    ("old", "new", "function", "lines"),
    [
        ("return x + 1", "return x + 2", "Model.rare", {14}),
        ("return self.rare(x)", "return self.rare(x) * 2", "Model.forward", {10}),
        ("scale=255", "scale=256", "prepare", {18}),
        ("return raw / scale", "return (\n        raw\n        / 2\n    )", "prepare", {18, 19, 20, 21}),
    ],
)
def test_changed_statements__one_statement__its_own_lines(old: str, new: str, function: str, lines: set[int]) -> None:
    _, added = changed_statements(MODEL.encode(), MODEL.replace(old, new).encode())
    assert [(one.function, one.lines) for one in added] == [(function, lines)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import torch\n", "import torch  # the framework\n"),
        ("return x + 1", "return x + 1  # type: ignore"),
        ("return x + 1", "return (x +\n                1)"),
        ("\n\ndef prepare", "\n\n\n\ndef prepare"),
    ],
)
def test_changed_statements__comments_and_formatting__none(old: str, new: str) -> None:
    assert changed_statements(MODEL.encode(), MODEL.replace(old, new).encode()) == ([], [])


def test_changed_statements__docstring__only_its_definition_shows_that_it_is_there() -> None:
    head = MODEL.replace("Return it.", "Answer the question.").replace("A model.", "Another model.")
    removed, added = changed_statements(MODEL.encode(), head.encode())
    assert [(one.function, one.lines) for one in added] == [("Model", frozenset()), ("Model.forward", frozenset())]
    assert [min(one.definition) for one in added] == [4, 7]
    assert len(removed) == len(added)
    _, added = changed_statements(b"x = 1\n", b'"""Words."""\nx = 1\n')
    assert [one.definition for one in added] == [{LOADED}]


def test_changed_statements__new_function__runs_only_if_its_body_does() -> None:
    _, added = changed_statements(
        MODEL.encode(), (MODEL + "\n\ndef extra(x: int = 1) -> int:\n    return x\n").encode()
    )
    assert [(one.function, one.lines) for one in added] == [("extra", {22}), ("extra", {22})]


@pytest.mark.parametrize(
    "added_code",
    [
        "@register\ndef extra(x):\n    return x\n",
        "def extra(x=compute()):\n    return x\n",
        "def __getattr__(name):\n    return name\n",
        "class Extra(metaclass=Registry):\n    pass\n",
        "class prepare:\n    pass\n",
        "WIDTH = 3\n",
        "import numpy\n",
    ],
)
def test_changed_statements__definition_that_does_more_than_bind_a_new_name__runs_at_import(added_code: str) -> None:
    _, added = changed_statements(MODEL.encode(), (MODEL + "\n\n" + added_code).encode())
    assert 21 in added[0].lines or {21, 22} & added[0].lines


def test_changed_statements__else_around_a_statement__seen() -> None:
    before = b"if a:\n    b()\nc()\n"
    after = b"if a:\n    b()\nelse:\n    c()\n"
    removed, added = changed_statements(before, after)
    assert [one.lines for one in removed] == [{3}]
    assert [one.lines for one in added] == [{4}]


def test_changed_statements__new_and_deleted_file__loading_it_counts() -> None:
    _, added = changed_statements(None, b"")
    assert [one.lines for one in added] == [{LOADED}]
    removed, _ = changed_statements(MODEL.encode(), None)
    assert removed[-1].lines == {LOADED}


@pytest.mark.parametrize("source", [b"import (", b"x = 1\0", b"x = 1\n" * 200_000, b"(" * 5000])
def test_changed_statements__no_python__uncomparable(source: bytes) -> None:
    with pytest.raises(UncomparableError):
        changed_statements(b"x = 1\n", source)


def test_names_of_functions__attributes_words_and_functions_of_one_name() -> None:
    used = names_of_functions(
        b"def f():\n    return a.b(getattr(c, 'd'))\nclass E:\n    def f(self):\n        return g\n"
    )
    assert used == {"f": {"a", "b", "getattr", "c", "d", "g"}}
