"""Select the changes worth measuring: by the path filter of perfgate.toml, and by the
code of the files they touch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from pathspec import GitIgnoreSpec

from perfgate.config import CI_FILES, DOCUMENTATION, Config, PathSettings
from perfgate.document.coverage import Coverage
from perfgate.document.decision import (
    ComparedSides,
    DecisionDocument,
    Measurement,
    Policy,
    Procedure,
    Verdict,
)
from perfgate.document.message import Message
from perfgate.document.run import Source
from perfgate.judging.gate.evidence.header import side_of
from perfgate.judging.gate.evidence.index import RunIndex
from perfgate.version import __version__

_IRRELEVANT = "[paths] relevant"
_SAME_CODE = "same syntax tree"
_WILDCARDS = frozenset("*?[")
# The group in pathspec's expressions that matches the slash after a folder.
_FOLDER_MARK = "ps_d"


def skipped_because(
    changed: Sequence[str],
    paths: PathSettings,
    *,
    always: Collection[str],
    read: Callable[[Sequence[str]], Collection[str]] = lambda _: (),
    same_code: Callable[[Sequence[str]], bool] = lambda _: False,
) -> Message | None:
    """Why a change needs no measurement; None if it needs one, or is empty.

    ``changed`` are the files that base and head do not share, as
    ``git diff --name-only --no-renames`` prints them, so that a renamed file counts
    under both names; ``always`` are those that count despite the filter. Only if the
    filter leaves something, ``same_code`` is asked whether these files differ only in
    text that does not run; then ``read`` is asked which of the files that a pattern
    excludes may be read by a measured process.
    """
    if any(file in always for file in changed):
        return None
    excluded = excluded_files(changed, paths)
    counted = [file for file in changed if file not in excluded]
    if counted and not same_code(counted):
        return None
    # A pattern that names a file itself means only that file.
    doubtful = [
        file
        for file, rule in excluded.items()
        if _WILDCARDS & set(rule) or rule.lstrip("/") != file
    ]
    if doubtful and read(doubtful):
        return None
    rules = dict.fromkeys(excluded.values())
    if counted:
        rules[_SAME_CODE] = None
    if not rules:
        return None
    return _worded(rules, len(changed))


def excluded_files(changed: Sequence[str], paths: PathSettings) -> dict[str, str]:
    """The files that the path filter leaves out, each with the pattern that does."""
    relevant = GitIgnoreSpec.from_lines(paths.relevant)
    ignored = GitIgnoreSpec.from_lines(paths.ignore)
    excluded = {}
    for file in changed:
        pattern = _pattern_of(file, paths.ignore, ignored)
        if pattern is not None:
            excluded[file] = pattern
        elif not relevant.match_file(file):
            excluded[file] = _IRRELEVANT
    return excluded


def files_taken_in(changed: Sequence[str], paths: PathSettings) -> set[str]:
    """The files that the path filter takes in by a pattern that begins with ``!``."""
    ignored = GitIgnoreSpec.from_lines(paths.ignore)
    return {file for file in changed if ignored.check_file(file).include is False}


def _pattern_of(
    file: str, written: Sequence[str], compiled: GitIgnoreSpec
) -> str | None:
    """The pattern that ignores a file, None if the last that matches takes it in.

    A pattern means files: it ignores the files of a folder only if it ends in ``/`` or
    ``**``.
    """
    for pattern, text in reversed(list(zip(compiled.patterns, written))):
        matched = pattern.match_file(file)
        if matched is None or pattern.include is None:
            continue
        if not pattern.include:
            return None
        is_of_folder = matched.match.groupdict().get(_FOLDER_MARK) is not None
        if not is_of_folder or text.rstrip().endswith(("/", "**")):
            return text
    return None


def _worded(rules: Iterable[str], count: int) -> Message:
    own = [
        rule for rule in rules if rule not in (*DOCUMENTATION, *CI_FILES, _SAME_CODE)
    ]
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
    return {
        f"{below}perfgate.toml",
        *(f"{below}{reference.file}" for reference in config.references),
    }


def files_of_environment(
    changed: Sequence[str], config: Config, prefix: str
) -> set[str]:
    """The changed files that define the packages of a side.

    They count despite the filter, unless it names the file itself: what `[measure]
    setup` installs by them is measured, but no measured process reads them.
    """
    if not config.measure.setup:
        return set()
    ignored = {pattern.strip().lstrip("/") for pattern in config.paths.ignore}
    below = f"{prefix}/" if prefix else ""
    patterns = GitIgnoreSpec.from_lines(
        f"/{pattern}" for pattern in config.measure.requirements
    )
    return {
        file
        for file in changed
        if file.startswith(below)
        and file not in ignored
        and patterns.match_file(file.removeprefix(below))
    }


def skipped(
    because: Message,
    *,
    config: Config,
    policy: Policy,
    base: Source,
    head: Source,
    chosen_because: Message | None,
) -> DecisionDocument:
    return DecisionDocument(
        perfgate_version=__version__,
        project=config.project,
        verdict="SKIPPED",
        reasons=[because],
        sides=ComparedSides(base=side_of(base, chosen_because), head=side_of(head)),
        measured=Measurement(device=config.device),
        procedure=Procedure(
            name="none",
            version=1,
            seed=config.measure.seed,
            quantiles=[],
            policy=policy,
        ),
    )


_VERDICTS: dict[str, Verdict] = {"skip": "SKIPPED", "warn": "WARN", "fail": "FAIL"}


def settles(coverage: Coverage | None, policy: Policy) -> bool:
    """Whether trials end a check, because no workload runs the changed code.

    Where that must be measured, a changed Python file without a changed function is
    measured: if the functions were taken out of a document, it would look like a change
    of text.
    """
    if coverage is None or not coverage.runs_nothing:
        return False
    is_told = bool(coverage.functions) or not any(
        file.endswith(".py") for file in coverage.files
    )
    return is_told or policy.unmeasured == "skip"


def measured_nothing(head: RunIndex) -> bool:
    """Whether the change was not measured because no workload runs its code."""
    return head.coverage is not None and head.coverage.runs_nothing and head.is_empty


def unmeasured(
    head: RunIndex, changed: frozenset[str] | None, policy: Policy
) -> tuple[Verdict, Message] | None:
    """The verdict on a change of which no workload runs anything, and its reason; None
    if it has to be measured.

    ``changed`` are the files of the change as the trusted side knows them: each must
    have been looked at. A change of text alone needs no workload, whatever the policy
    requires for code.
    """
    coverage = head.coverage
    if (
        coverage is None
        or not coverage.files
        or not settles(coverage, policy)
        or not measured_nothing(head)
    ):
        return None
    if changed is not None and not changed <= set(coverage.files):
        return None
    if not coverage.functions:
        return "SKIPPED", Message("gate.unread", {"count": len(coverage.files)})
    return _VERDICTS[policy.unmeasured], Message("gate.unmeasured")
