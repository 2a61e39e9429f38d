"""Hold one run, measured or recorded, to the rules of perfgate.toml that need no base."""

from __future__ import annotations

from pathlib import Path

import msgspec

from perfgate.config import CONFIG_NAME, Config, load_config, parse_config
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.files import read_run, write_run
from perfgate.document.run import RunDocument
from perfgate.errors import ConfigError, UsageError
from perfgate.jobs.run.job import RunOptions, run_here
from perfgate.jobs.shared.judge import copy_artifacts, write_decision_folder
from perfgate.jobs.shared.progress import Progress
from perfgate.jobs.shared.session import forget_results, prepare_out
from perfgate.judging.advice.advise import suggestions
from perfgate.judging.gate.decide import decide_alone
from perfgate.locale import Language

RESULTS = ("decision.json", "comment.md", "report.html")


def run_and_judge(
    config: Config, options: RunOptions, progress: Progress
) -> tuple[RunDocument, DecisionDocument | None]:
    """Run the checklist and hold the run to the rules; there is no decision where perfgate.toml has none.

    The decision stands beside run.json, as comment.md and report.html do.
    """
    policy = config.policy()
    out = prepare_out(options.out)
    if policy.judges_alone or not (out / "head" / "run.json").exists():  # else they are a check's
        forget_results(out, RESULTS)
    run = run_here(config, options, progress)
    if not policy.judges_alone:
        return run, None
    decision = _judged(run, policy)
    links = [msgspec.structs.replace(link, path=link.path.partition("/")[2]) for link in decision.links]
    decision = msgspec.structs.replace(decision, links=links)
    write_decision_folder(out, decision, None, run, options.language)
    return run, decision


def judge_alone(head: Path, *, config: Path | None, out: Path | None, language: Language = "en") -> DecisionDocument:
    """Hold a run document, or the one in a folder, to the rules of a perfgate.toml: of the nearest where none is named.

    The decision and a copy of the document go to ``out``, or nowhere. Raises UsageError where there is no such rule.
    """
    file = config or nearest_config(Path())
    if file is None:
        raise UsageError(f"there is no {CONFIG_NAME} here or above; name one with --config, or give --base as well")
    policy = read_config(file).policy()
    if not policy.judges_alone:
        raise UsageError(
            f"{file} has no rule that judges a run without a base; write a [budget], [expect] kernels, or a limit with "
            "gating = true, or give --base as well"
        )
    path = head / "run.json" if head.is_dir() else head
    run = read_run(path)
    decision = _judged(run, policy)
    if out is not None:
        (out / "head").mkdir(parents=True, exist_ok=True)
        write_run(out / "head" / "run.json", run)
        copy_artifacts(run, path.parent, out / "head")
        write_decision_folder(out, decision, None, run, language)
    return decision


def nearest_config(folder: Path) -> Path | None:
    """Return the perfgate.toml of a folder, or of the nearest one above it that has one."""
    start = folder.resolve()
    return next((file for at in (start, *start.parents) if (file := at / CONFIG_NAME).is_file()), None)


def read_config(path: Path) -> Config:
    """Read a perfgate.toml, by its own name or another, that may name no workload."""
    if path.is_dir():
        return load_config(path, needs_workload=False)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    return parse_config(text, path, needs_workload=False)


def _judged(run: RunDocument, policy: Policy) -> DecisionDocument:
    return msgspec.structs.replace(decide_alone(run, policy=policy), suggestions=suggestions(run))
