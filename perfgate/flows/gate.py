"""``perfgate gate``: judge a check folder again, two run documents made apart, or one
run by the rules that need no base.
"""

from __future__ import annotations

from pathlib import Path

from perfgate.config import CONFIG_NAME, Config, load_config, parse_config
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.files import read_run, write_document
from perfgate.document.history import History
from perfgate.errors import ConfigError, DocumentError, UsageError
from perfgate.flows.shared.decision import (
    copy_artifacts,
    decide_alone_with_advice,
    decide_with_advice,
    judge_folder_with_advice,
    write_decision_folder,
)
from perfgate.locale import Language


def judge_again(
    folder: Path, *, policy: Policy | None, out: Path | None, language: Language
) -> DecisionDocument:
    """Judge the documents in ``folder`` again; the decision goes to ``out``, if given."""
    decision = judge_folder_with_advice(folder, policy=policy)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        base = read_run(folder / "base" / "run.json")
        head = read_run(folder / "head" / "run.json")
        write_decision_folder(out, decision, base, head, language)
    return decision


def judge_documents(
    base: Path,
    head: Path,
    *,
    policy: Policy,
    out: Path | None,
    language: Language,
) -> DecisionDocument:
    """Judge two run documents that were made apart; metrics without pairs are compared
    by their counts alone.

    ``base`` and ``head`` are run.json files or their folders. The decision and copies
    of both documents go to ``out``, which is then a check folder like any other. Raises
    DocumentError if the two have no workload or job in common.
    """
    paths = [path / "run.json" if path.is_dir() else path for path in (base, head)]
    runs = [read_run(path) for path in paths]
    names: list[set[str]] = []
    for run in runs:
        workloads = {workload.name for workload in run.workloads}
        names.append(workloads.union(job.name for job in run.jobs.records))
    if names[0].isdisjoint(names[1]):
        raise DocumentError(
            "{first} has the workload {first_names} and {second} the workload {second_names}, so they cannot be "
            "compared; give recordings of the same program one name with --workload",
            first=paths[0],
            first_names=", ".join(sorted(names[0])),
            second=paths[1],
            second_names=", ".join(sorted(names[1])),
        )
    decision = decide_with_advice(runs[0], runs[1], policy=policy, history=History())
    if out is not None:
        for side, run, path in zip(("base", "head"), runs, paths):
            (out / side).mkdir(parents=True, exist_ok=True)
            write_document(out / side / "run.json", run)
            copy_artifacts(run, path.parent, out / side)
        write_decision_folder(out, decision, runs[0], runs[1], language)
    return decision


def judge_alone(
    head: Path, *, config: Path | None, out: Path | None, language: Language
) -> DecisionDocument:
    """Check a run document, or the document in a folder, against the rules of a
    perfgate.toml, by default the nearest.

    The decision and a copy of the document go to ``out``, if given. Raises UsageError
    if the file has no such rule.
    """
    file = config
    here = Path.cwd()
    for folder in (here, *here.parents):
        if file is None and (folder / CONFIG_NAME).is_file():
            file = folder / CONFIG_NAME
    if file is None:
        raise UsageError(
            "there is no {file} here or above; name one with --config, or give --base as well",
            file=CONFIG_NAME,
        )
    policy = read_config(file).policy()
    if not policy.judges_alone:
        raise UsageError(
            "{file} has no rule that judges a run without a base; write a [budget], [expect] kernels, or a limit "
            "with gating = true, or give --base as well",
            file=file,
        )
    path = head
    if head.is_dir():
        path = head / "run.json"
    run = read_run(path)
    decision = decide_alone_with_advice(run, policy)
    if out is not None:
        (out / "head").mkdir(parents=True, exist_ok=True)
        write_document(out / "head" / "run.json", run)
        copy_artifacts(run, path.parent, out / "head")
        write_decision_folder(out, decision, None, run, language)
    return decision


def read_config(path: Path) -> Config:
    """Read a perfgate.toml, under any file name; it needs no workload."""
    if path.is_dir():
        return load_config(path, needs_workload=False)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "{path} cannot be read: {error}", path=path, error=error
        ) from error
    return parse_config(text, path, needs_workload=False)
