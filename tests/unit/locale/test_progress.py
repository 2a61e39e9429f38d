"""Every progress and note line that a person sees is a sentence of the catalogue: none is put together where it is shown."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.locale import Activity
from tests.each import each
from tests.source import all_modules

# Functions that show a line to a person, whatever object they belong to.
SHOWING = frozenset({"note", "say", "status", "echo", "warn", "announce", "progress"})
# What they may be given: sentences, and what only passes sentences on.
SENTENCES = frozenset({"sentence", "Activity", "translate"})
PASSING_ON = frozenset({"cleaned", "escape", "log_lines", "join", "shown"})
# There, `say` is the function that translates.
REPORT = "judging/report"
# What a person types, and where something lies: the same in every language.
CODE = re.compile(r"perfgate(?:: INCONCLUSIVE:)?|\\$ perfgate")
# The code of a message has no blanks.
WORDS = re.compile(r"[A-Za-z]{2,}[:,;.]?\s|\s[A-Za-z]{2,}")


def lines_without_translation(tree: ast.AST) -> Iterator[int]:
    """The lines on which a text with words is shown that is no sentence."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node) in SHOWING and node.args:
            for text in _texts(node.args[0]):
                if WORDS.search(CODE.sub("", text)):
                    yield node.lineno


def _name(call: ast.Call) -> str:
    function = call.func
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    return name.lstrip("_")


def _texts(node: ast.AST) -> Iterator[str]:
    """The texts that are written out in an argument, outside of sentences; those in the values of sentences count."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.Call):
        is_format = _name(node) == "format" and isinstance(node.func, ast.Attribute)
        if is_format and isinstance(node.func, ast.Attribute):
            yield from _texts(node.func.value)
        inner = [keyword.value for keyword in node.keywords] if _name(node) in SENTENCES else node.args
        for value in inner if _name(node) in SENTENCES | PASSING_ON else ():
            yield from (
                _texts(value) if isinstance(value, (ast.JoinedStr, ast.List, ast.IfExp, ast.BinOp, ast.Call)) else ()
            )
    elif isinstance(node, ast.JoinedStr):
        yield " ".join(value.value for value in node.values if isinstance(value, ast.Constant))
    elif isinstance(node, (ast.BinOp, ast.IfExp, ast.List, ast.Tuple, ast.Starred)):
        children = [node.body, node.orelse] if isinstance(node, ast.IfExp) else ast.iter_child_nodes(node)
        for child in children:
            yield from _texts(child)


@each("path", [path for path in all_modules() if REPORT not in path.as_posix()])
def test_progress__line_that_is_shown__is_a_sentence(path: Path) -> None:
    found = sorted(set(lines_without_translation(ast.parse(path.read_text(encoding="utf-8")))))
    assert found == [], f"{path}: wrap the text of these lines in sentence(...) or Activity(...)"


@pytest.mark.parametrize(
    "code",
    [
        'say(f"reading {name}")',
        'progress.note("reading it")',
        'self._say("reading {}".format(name))',
        'click.echo(cleaned(f"kept run {run}"))',
        'say("reading it" if once else "")',
        'say(sentence("{what} done", what=f"reading {name}"))',
        'note("a " + f"reading of {name}")',
    ],
)
def test_lines_without_translation__text_put_together_where_it_is_shown__found(code: str) -> None:
    assert list(lines_without_translation(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        'say(sentence("reading {name}", name=name))',
        'progress.note(Activity("reading"))',
        'say(f"{doing.shown}: {error.shown}")',
        'echo(f"$ perfgate {arguments}")',
        "say(text)",
    ],
)
def test_lines_without_translation__sentence_or_values_alone__not_found(code: str) -> None:
    assert not list(lines_without_translation(ast.parse(code)))


def test_activity__parts__make_the_same_activity_elsewhere() -> None:
    activity = Activity("tracing inputs of shape {shape}", shape="long")
    assert Activity(activity.template, **activity.values) == activity == "tracing inputs of shape long"
