"""Which changes are worth measuring: by the path filter of perfgate.toml, and by the code itself, over the files they touch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from pathspec import GitIgnoreSpec

from perfgate.config import Config, PathSettings
from perfgate.document.decision import DecisionDocument, Policy, Procedure
from perfgate.document.message import Message
from perfgate.document.run import Source
from perfgate.judging.gate.decide import side_of
from perfgate.version import __version__

_IRRELEVANT = "[paths] relevant"
_SAME_CODE = "same syntax tree"


def skipped_because(
    changed: Sequence[str],
    paths: PathSettings,
    *,
    always: Collection[str] = (),
    same_code: Callable[[Sequence[str]], bool] = lambda _: False,
) -> Message | None:
    """Why nothing in a change needs measuring, with the rule; None where something does, or nothing changed.

    ``changed`` are the files that base and head do not share, as ``git diff --name-only --no-renames`` prints them, so that
    a renamed file counts under both names; ``always`` are those that count whatever the filter says. ``same_code`` is asked,
    once and only where the filter leaves something, whether what is left differs in nothing that runs.
    """
    relevant, ignored = (GitIgnoreSpec.from_lines(patterns) for patterns in (paths.relevant, paths.ignore))
    rules: dict[str, None] = {}
    unfiltered = []
    for file in changed:
        match = ignored.check_file(file)
        if file in always:
            return None
        if match.include and match.index is not None:
            rules[paths.ignore[match.index]] = None
        elif not relevant.match_file(file):
            rules[_IRRELEVANT] = None
        else:
            unfiltered.append(file)
    if unfiltered:
        if not same_code(unfiltered):
            return None
        rules[_SAME_CODE] = None
    if not rules:
        return None
    return Message("gate.nothing-changed", {"count": len(changed), "rules": list(rules)})


def always_relevant(config: Config, prefix: str) -> set[str]:
    """The files that say what is measured, and how: a change of them is never skipped."""
    below = f"{prefix}/" if prefix else ""
    return {f"{below}perfgate.toml", *(f"{below}{reference.file}" for reference in config.workloads)}


def skipped(
    because: Message, *, config: Config, policy: Policy, base: Source, head: Source, chosen_because: Message | None
) -> DecisionDocument:
    return DecisionDocument(
        perfgate_version=__version__,
        project=config.project,
        verdict="SKIPPED",
        reasons=[because],
        base=side_of(base, chosen_because),
        head=side_of(head),
        device=config.device,
        policy=policy,
        procedure=Procedure(name="none", version=1, seed=config.measure.seed, quantiles=[]),
    )
