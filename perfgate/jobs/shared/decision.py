"""The gate's decision with its advice: two rooms that do not know each other, one after the other."""

from __future__ import annotations

from pathlib import Path

from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.files import read_run
from perfgate.document.history import History
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.judging.advice.advise import advised
from perfgate.judging.gate.decide import NOTHING_REQUIRED, decide, judge_folder
from perfgate.judging.gate.required import Required


def decide_with_advice(
    base: RunDocument,
    head: RunDocument,
    *,
    policy: Policy,
    history: History,
    chosen_because: Message | str | None = None,
    required: Required = NOTHING_REQUIRED,
) -> DecisionDocument:
    """Judge head against base and say what to try; a pure function, as both its parts are."""
    decision = decide(base, head, policy=policy, history=history, chosen_because=chosen_because, required=required)
    return advised(decision, base, head)


def judge_folder_with_advice(folder: Path, *, policy: Policy | None = None) -> DecisionDocument:
    """Judge the documents of a check folder again, and say again what to try."""
    decision = judge_folder(folder, policy=policy)
    return advised(decision, read_run(folder / "base" / "run.json"), read_run(folder / "head" / "run.json"))
