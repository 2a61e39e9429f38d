"""Select the changes worth measuring: by the path filter of perfgate.toml, and by the code of the files they touch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

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
    read: Callable[[Sequence[str]], Collection[str]] = lambda _: (),
    same_code: Callable[[Sequence[str]], bool] = lambda _: False,
) -> Message | None:
    """Why nothing in a change needs measuring; None if something does, or nothing changed.

    ``changed`` are the files that base and head do not share, as ``git diff --name-only --no-renames`` prints them, so that a
    renamed file counts under both names; ``always`` are those that count despite the filter. Only if the filter leaves
    something, ``same_code`` is asked whether these files differ in nothing that runs; then ``read`` is asked which of the files
    that a pattern excludes may be read by a measured process.
    """
    relevant, ignored = (GitIgnoreSpec.from_lines(patterns) for patterns in (paths.relevant, paths.ignore))
    excluded: dict[str, str] = {}
    counted = []
    for file in changed:
        match = ignored.check_file(file)
        if file in always:
            return None
        if match.include and match.index is not None:
            excluded[file] = paths.ignore[match.index]
        elif not relevant.match_file(file):
            excluded[file] = _IRRELEVANT
        else:
            counted.append(file)
    if counted and not same_code(counted):
        return None
    # A pattern that names a file itself means only that file.
    doubtful = [file for file, rule in excluded.items() if _WILDCARDS & set(rule) or rule.lstrip("/") != file]
    if doubtful and read(doubtful):
        return None
    rules = dict.fromkeys([*excluded.values(), *([_SAME_CODE] if counted else [])])
    return _worded(rules, len(changed)) if rules else None


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
    """The files that define the measurement: a change of them is never skipped."""
    below = f"{prefix}/" if prefix else ""
    return {f"{below}perfgate.toml", *(f"{below}{reference.file}" for reference in config.references)}


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
