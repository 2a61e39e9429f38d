"""Every sentence of the catalogue is said by some code, and every code that is written out has its sentence."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from string import Formatter

from perfgate.catalogue.lookup import MESSAGES, METRICS, RULE_ADVICE
from perfgate.measuring.checklist.symptoms import load_symptoms
from tests.source import all_modules, calls, source, text_constants


def test_messages__every_code__is_used() -> None:
    advice = {metric.gate.advice for metric in METRICS.values() if metric.gate.advice}
    advice |= {name.partition(".")[0] for name in advice}
    of_rules = {f"advice.{rule}{end}" for rule in RULE_ADVICE for end in ("", ".instead")}

    of_symptoms = {f"mistake.{name}" for name in load_symptoms()}

    unused = [code for code in MESSAGES if code not in of_rules | of_symptoms and not _is_used(code, advice)]

    assert sorted(unused) == []


def test_messages__every_symptom__has_advice() -> None:
    assert [name for name in load_symptoms() if f"mistake.{name}" not in MESSAGES] == []


def _is_used(code: str, advice: set[str]) -> bool:
    """Whether the code stands in a module, or what the code puts it together of."""
    area, _, name = code.partition(".")
    # `verdict` and `advice` are put before a name that stands in the code, in a metric's entry, or in a finding's advice.
    named = [name] if area in ("verdict", "advice") else []
    of_a_line = [code.removesuffix("-at")]
    # A check of the machine has a name, a sentence has that name and its end: all of it without the area, or the end alone.
    ends = [name[at + 1 :] for at, character in enumerate(name) if character == "-"]
    of_checks = [name, *ends] if area == "fitness" else []
    return any(text in advice or _is_text(text) for text in (code, *of_a_line, *named, *of_checks))


@cache
def _is_text(text: str) -> bool:
    """Whether a module holds the text as a constant, or one that begins with it and a dot, as `pressure.memory`."""
    # Those that quote it come first, so that few need to be parsed.
    modules = sorted(_modules_with_words()[text], key=lambda path: f'"{text}"' not in source(path))
    return any(
        text in text_constants(path) or any(text == constant.partition(".")[0] for constant in text_constants(path))
        for path in modules
    )


@cache
def _modules_with_words() -> dict[str, list[Path]]:
    modules: dict[str, list[Path]] = defaultdict(list)
    for path in all_modules():
        words = set(re.findall(r"[\w.:-]+", source(path)))
        for word in words | {word.partition(".")[0] for word in words}:
            modules[word].append(path)
    return modules


def test_messages__code_in_a_message__has_its_sentence() -> None:
    unknown = []
    for path in all_modules():
        for _, call in calls(path, frozenset({"Message"})):
            first = call.args[0]
            choices = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
            codes = [choice.value for choice in choices if isinstance(choice, ast.Constant)]
            unknown += [f"{path}:{call.lineno} {code}" for code in codes if code not in MESSAGES]

    assert unknown == []


def test_messages__values_written_out__are_those_of_the_sentence() -> None:
    lacking = []
    for path in all_modules():
        for _, call in calls(path, frozenset({"Message"})):
            code = call.args[0]
            if not isinstance(code, ast.Constant) or code.value not in MESSAGES:
                continue
            given = _names_given(call)
            if given is not None:
                named = {name for _, name, _, _ in Formatter().parse(MESSAGES[code.value].other) if name}
                lacking += [f"{path}:{call.lineno} {name}" for name in sorted(named - given)]

    assert lacking == []


def _names_given(call: ast.Call) -> set[str] | None:
    """The names of a message's values; None if they are not all written out."""
    if len(call.args) < 2:
        return set() if not call.keywords else None
    values = call.args[1]
    if not isinstance(values, ast.Dict):
        return None
    names = set()
    for key in values.keys:
        if not isinstance(key, ast.Constant):
            return None
        names.add(str(key.value))
    return names
