"""Sentences that documents still hold as text, and the words of templates."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from jinja2 import Environment, nodes

from perfgate.judging import report

REPORT = Path(report.__file__).parent
TEMPLATES = REPORT / "templates"
# What a tag, a style or a link of ours says is no sentence.
_MARKUP = re.compile(r"<style>.*?</style>|<[^>]*>|\{\{.*?\}\}|`[^`]*`", re.DOTALL)
# A place of a sentence that is filled later, with how its number is written.
_FORMAT = re.compile(r"\{(\w+):[^{}]*\}")
_WORD = re.compile(r"[A-Za-z]{2,}")
# A pattern that begins with a name of its own and a colon says enough, however short it is.
_NAMED = re.compile(r"[A-Za-z]{2,}:\\ ")
# Nothing that a step says in fewer words is a sentence.
_FEWEST_WORDS = 3
_DIGIT = "7"


def unsaid_words(path: Path) -> list[str]:
    """Return the words of a template that stand outside of every sentence tag."""
    environment = Environment(extensions=["jinja2.ext.i18n"], trim_blocks=True, lstrip_blocks=True)
    tree = environment.parse(path.read_text(encoding="utf-8"))
    text = "".join(data.data for data in tree.find_all(nodes.TemplateData))
    return _WORD.findall(_MARKUP.sub(" ", text))


def step_sentences() -> dict[str, str]:
    """Return every sentence that the steps hold and may give as a reason, with a digit for each value, and where it stands.

    That is all of their text but docstrings, the names in evidence and labels, and what they tell while they measure: a
    reason may reach its value by any way, so none is left out for the way it takes.
    """
    measuring = REPORT.parent.parent / "measuring"
    checklist, counting = measuring / "checklist", measuring / "counting"
    folders = [
        checklist / "steps",
        checklist / "recorded.py",
        checklist / "experiment.py",
        counting / "account.py",
        counting / "lines.py",
    ]
    found = {}
    for folder in folders:
        for module in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            for line, text in _spoken(ast.parse(module.read_text(encoding="utf-8"))):
                if sum(any(map(str.isalpha, word)) for word in text.split()) >= _FEWEST_WORDS:
                    found[text] = f"{module.name}:{line}"
    return found


def _spoken(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in _without_names(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, _FORMAT.sub(_DIGIT, node.value)
        elif isinstance(node, ast.JoinedStr):
            yield from ((node.lineno, text) for text in _samples(node))


def _without_names(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but texts that name or describe something for the program, and the pieces of an f-string."""
    yield node
    for child in ast.iter_child_nodes(node):
        docstring = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
        progress = isinstance(child, ast.Call) and getattr(child.func, "attr", "") in ("progress", "doing")
        key = isinstance(node, ast.Dict) and any(child is name for name in node.keys)
        index = isinstance(node, ast.Subscript) and child is node.slice
        if isinstance(node, ast.JoinedStr):
            if isinstance(child, ast.FormattedValue):
                yield from _without_names(child.value)
        elif not (docstring or progress or key or index):
            yield from _without_names(child)


def _samples(text: ast.JoinedStr) -> Iterator[str]:
    """Yield what an f-string may read, once for each way its conditions go."""
    ways: list[list[str]] = []
    for part in text.values:
        value = part.value if isinstance(part, ast.FormattedValue) else part
        choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        ways.append([sample for choice in choices for sample in _sample(choice)])
    yield from map("".join, product(*ways))


def _sample(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.JoinedStr):
        yield from _samples(value)
    else:
        yield value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else _DIGIT
