"""Every sentence of the catalogue is said by some code, and every code that is written out has its sentence."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from perfgate.catalogue.lookup import MESSAGES, METRICS, RULE_ADVICE
from perfgate.system.folders import PACKAGE
from tests.translations import PLUGINS


@cache
def _nodes() -> list[tuple[Path, ast.Constant | ast.Call]]:
    """The constants and calls of every module."""
    return [
        (path, node)
        for path in [*PACKAGE.rglob("*.py"), *PLUGINS.glob("*/perfgate_*/*.py")]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant | ast.Call)
    ]


def test_messages__every_code__is_used() -> None:
    texts = {node.value for _, node in _nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    # `verdict` and `advice` are put before a name that stands in the code, in a metric's entry, or in a finding's advice.
    texts |= {metric.advice for metric in METRICS.values() if metric.advice}
    texts |= {text.partition(".")[0] for text in texts}  # of `pressure.memory` the sentence is that of `pressure`
    named = {f"{area}.{text}" for area in ("verdict", "advice") for text in texts}
    of_a_line = {f"{text}-at" for text in texts}
    of_rules = {f"advice.{rule}{end}" for rule in RULE_ADVICE for end in ("", ".instead")}
    # A check of the machine has a name, a sentence has that name and its end.
    of_checks = {code for code in MESSAGES if code.startswith("fitness.") and _parts(code) & texts}

    assert sorted(MESSAGES.keys() - texts - named - of_a_line - of_rules - of_checks) == []


def _parts(code: str) -> set[str]:
    """What stands in the code for ``fitness.NAME-END``: all of it without the area, or the end alone."""
    name = code.partition(".")[2]
    return {name, *(name[at + 1 :] for at, character in enumerate(name) if character == "-")}


def test_messages__code_in_a_message__has_its_sentence() -> None:
    unknown = [
        f"{path.relative_to(PACKAGE.parent)}:{node.lineno} {node.args[0].value}"
        for path, node in _nodes()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Message"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value not in MESSAGES
    ]

    assert unknown == []
