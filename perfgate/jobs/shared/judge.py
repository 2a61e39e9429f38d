"""``perfgate gate``: judge a check folder again, or two run documents, and write what was decided the way every check does."""

from __future__ import annotations

import shutil
from pathlib import Path

from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.files import read_run, write_decision, write_run, write_text_atomically
from perfgate.document.history import History
from perfgate.document.run import RunDocument
from perfgate.errors import DocumentError
from perfgate.jobs.shared.decision import decide_with_advice, judge_folder_with_advice
from perfgate.judging.forge.comment import marker
from perfgate.judging.report.comment import CommentContext, render_comment
from perfgate.judging.report.html import render_html
from perfgate.locale import Language


def judge_again(
    folder: Path, *, policy: Policy | None, out: Path | None, language: Language = "en"
) -> DecisionDocument:
    """Judge the documents in ``folder`` again; the decision goes to ``out``, or nowhere."""
    decision = judge_folder_with_advice(folder, policy=policy)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        base, head = read_run(folder / "base" / "run.json"), read_run(folder / "head" / "run.json")
        write_decision_folder(out, decision, base, head, language)
    return decision


def judge_documents(
    base: Path, head: Path, *, policy: Policy, out: Path | None, language: Language = "en"
) -> DecisionDocument:
    """Judge two run documents that were made apart; what has no pairs is compared by its counts alone.

    ``base`` and ``head`` are run.json files or their folders. The decision and copies of both documents go to ``out``, which
    is then a check folder like any other. Raises DocumentError where the two have no workload in common.
    """
    paths = [path / "run.json" if path.is_dir() else path for path in (base, head)]
    runs = [read_run(path) for path in paths]
    names = [{workload.name for workload in run.workloads} for run in runs]
    if not names[0] & names[1]:
        raise DocumentError(
            f"{paths[0]} is of workload {', '.join(sorted(names[0]))} and {paths[1]} of {', '.join(sorted(names[1]))}: "
            "nothing in them can be compared; give recordings of one program one name with --workload"
        )
    decision = decide_with_advice(runs[0], runs[1], policy=policy, history=History())
    if out is not None:
        for side, run, path in zip(("base", "head"), runs, paths):
            (out / side).mkdir(parents=True, exist_ok=True)
            write_run(out / side / "run.json", run)
            copy_artifacts(run, path.parent, out / side)
        write_decision_folder(out, decision, runs[0], runs[1], language)
    return decision


def copy_artifacts(run: RunDocument, source: Path, target: Path) -> None:
    """Copy the files a document names, as far as they lie in its own folder; a document may come from anywhere."""
    root = source.resolve()
    for artifact in run.artifacts:
        file = (root / artifact.path).resolve()
        if root in file.parents and file.is_file() and ".." not in Path(artifact.path).parts:
            copy = target / artifact.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            if copy.resolve() != file:
                shutil.copyfile(file, copy)


def write_decision_folder(
    out: Path, decision: DecisionDocument, base: RunDocument | None, head: RunDocument, language: Language = "en"
) -> None:
    """Write decision.json, comment.md and report.html; ``base`` is None where the head alone was judged."""
    write_decision(out / "decision.json", decision)
    write_text_atomically(out / "comment.md", render_comment(decision, comment_context(decision, language)))
    write_text_atomically(out / "report.html", render_html(decision, base, head, language))


def write_skipped(out: Path, decision: DecisionDocument, language: Language = "en") -> None:
    """Write decision.json and comment.md of a decision not to measure; there is nothing for a page to show."""
    write_decision(out / "decision.json", decision)
    write_text_atomically(out / "comment.md", render_comment(decision, comment_context(decision, language)))


def comment_context(decision: DecisionDocument, language: Language) -> CommentContext:
    """Return what the comment of a check folder takes besides the decision."""
    base = (decision.base.commit or "")[:12]
    # Which interpreters an upgrade report compared is nobody's business but the machine's.
    reproduce = f"perfgate local --base {base}" if base and decision.comparing == "code" else None
    return CommentContext(marker=marker(decision.project), reproduce=reproduce, language=language)
