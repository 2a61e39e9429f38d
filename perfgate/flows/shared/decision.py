"""The gate's decision with its advice, and its files in a check folder."""

from __future__ import annotations

import shutil
from pathlib import Path

from msgspec.structs import replace

from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.files import read_run, write_document, write_text_atomically
from perfgate.document.history import History
from perfgate.document.message import Message
from perfgate.document.run import RunDocument
from perfgate.flows.shared.results import folder_to_name
from perfgate.judging.advice.advise import advised, suggestions
from perfgate.judging.forge.comment import marker
from perfgate.judging.gate.decide import (
    NOTHING_REQUIRED,
    decide,
    decide_alone,
    judge_folder,
)
from perfgate.judging.gate.evidence.trusted import Required
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.judging.report.render.html import render_html
from perfgate.locale import Language


def decide_with_advice(
    base: RunDocument,
    head: RunDocument,
    *,
    policy: Policy,
    history: History,
    chosen_because: Message | None = None,
    required: Required = NOTHING_REQUIRED,
) -> DecisionDocument:
    """Judge head against base and add suggestions; a pure function, like both its
    parts.
    """
    decision = decide(
        base,
        head,
        policy=policy,
        history=history,
        chosen_because=chosen_because,
        required=required,
    )
    return advised(decision, base, head)


def judge_folder_with_advice(
    folder: Path, *, policy: Policy | None
) -> DecisionDocument:
    """Judge the documents of a check folder again, with new suggestions."""
    decision = judge_folder(folder, policy=policy)
    return advised(
        decision,
        read_run(folder / "base" / "run.json"),
        read_run(folder / "head" / "run.json"),
    )


def decide_alone_with_advice(run: RunDocument, policy: Policy) -> DecisionDocument:
    decision = decide_alone(run, policy=policy)
    explained = replace(decision.explained, suggestions=suggestions(run))
    return replace(decision, explained=explained)


def copy_artifacts(run: RunDocument, source: Path, target: Path) -> None:
    """Copy the files a document names if they lie in its own folder; a document may
    come from an untrusted source.
    """
    root = source.resolve()
    for artifact in run.artifacts:
        file = (root / artifact.path).resolve()
        if (
            root in file.parents
            and file.is_file()
            and ".." not in Path(artifact.path).parts
        ):
            copy = target / artifact.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            if copy.resolve() != file:
                shutil.copyfile(file, copy)


def write_decision_folder(
    out: Path,
    decision: DecisionDocument,
    base: RunDocument | None,
    head: RunDocument,
    language: Language,
) -> None:
    """Write decision.json, comment.md and report.html; ``base`` is None if the head
    alone was judged.
    """
    write_document(out / "decision.json", decision)
    context = comment_context(decision, language, folder_to_name(out))
    write_text_atomically(out / "comment.md", render_comment(decision, context))
    page = render_html(decision, base, head, language, folder=context.folder)
    write_text_atomically(out / "report.html", page)


def write_skipped(out: Path, decision: DecisionDocument, language: Language) -> None:
    """Write decision.json and comment.md of a decision not to measure; a report page
    would be empty.
    """
    write_document(out / "decision.json", decision)
    write_text_atomically(
        out / "comment.md",
        render_comment(decision, comment_context(decision, language)),
    )


def comment_context(
    decision: DecisionDocument, language: Language, folder: str | None = None
) -> CommentContext:
    """The context of a comment that is not posted; ``folder`` is its check folder as
    commands name it.
    """
    base = (decision.sides.base.commit or "")[:12]
    # An upgrade compares interpreters of this machine only, so no command would
    # reproduce it elsewhere.
    reproduce = None
    if base and decision.sides.comparing == "code":
        reproduce = f"perfgate local --base {base}"
    return CommentContext(
        marker=marker(decision.project),
        reproduce=reproduce,
        folder=folder,
        language=language,
    )
