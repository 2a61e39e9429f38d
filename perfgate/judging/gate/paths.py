"""Which changes are worth measuring: by the path filter of perfgate.toml, and by the code itself, over the files they touch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import PurePosixPath

from pathspec import GitIgnoreSpec

from perfgate.config import CI_FILES, DOCUMENTATION, Config, PathSettings
from perfgate.document.decision import DecisionDocument, Policy, Procedure
from perfgate.document.message import Message
from perfgate.document.run import Source
from perfgate.judging.gate.decide import side_of
from perfgate.version import __version__

_IRRELEVANT = "[paths] relevant"
_SAME_CODE = "same syntax tree"
_WILDCARDS = frozenset("*?[")


def skipped_because(
    changed: Sequence[str],
    paths: PathSettings,
    *,
    always: Collection[str] = (),
    read: Collection[str] = (),
    same_code: Callable[[Sequence[str]], bool] = lambda _: False,
) -> Message | None:
    """Why nothing in a change needs measuring; None where something does, or nothing changed.

    ``changed`` are the files that base and head do not share, as ``git diff --name-only --no-renames`` prints them, so that
    a renamed file counts under both names; ``always`` are those that count whatever the filter says, ``read`` those that a
    measured process was seen to read. ``same_code`` is asked, once and only where the filter leaves something, whether what
    is left differs in nothing that runs.
    """
    relevant, ignored = (GitIgnoreSpec.from_lines(patterns) for patterns in (paths.relevant, paths.ignore))
    kinds_read = {_kind(file) for file in read}
    rules: dict[str, None] = {}
    unfiltered = []
    for file in changed:
        match = ignored.check_file(file)
        rule = paths.ignore[match.index] if match.include and match.index is not None else None
        if file in always:
            return None
        if rule is not None and (_names(rule, file) or _kind(file) not in kinds_read):
            rules[rule] = None
        elif rule is None and not relevant.match_file(file) and _kind(file) not in kinds_read:
            rules[_IRRELEVANT] = None
        else:
            unfiltered.append(file)
    if unfiltered:
        if not same_code(unfiltered):
            return None
        rules[_SAME_CODE] = None
    return _worded(rules, len(changed)) if rules else None


def _kind(file: str) -> tuple[str, str]:
    """Its folder and ending: where one file of a kind is read, the next may be found by a pattern."""
    path = PurePosixPath(file)
    return str(path.parent), path.suffix


def _names(pattern: str, file: str) -> bool:
    """Whether a pattern names a file itself: its author means just this one."""
    return not _WILDCARDS & set(pattern) and pattern.lstrip("/") == file


def _worded(rules: Iterable[str], count: int) -> Message:
    own = [rule for rule in rules if rule not in (*DOCUMENTATION, *CI_FILES, _SAME_CODE)]
    if own:
        return Message("gate.nothing-changed", {"count": count, "rules": list(rules)})
    if set(rules) == {_SAME_CODE}:
        return Message("gate.only-comments", {"count": count})
    if set(rules) <= set(DOCUMENTATION):
        return Message("gate.only-documentation", {"count": count})
    return Message("gate.only-unread", {"count": count})


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
