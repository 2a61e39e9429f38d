"""``perfgate local --hook``: the commits that a ``git push`` is about to send, and whether it may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfgate.document.decision import DecisionDocument, Failure
from perfgate.document.run import TIME_SPENT
from perfgate.errors import EXIT_INCONCLUSIVE, EXIT_MEASURING, EXIT_PASS
from perfgate.git.repository import Repository
from perfgate.judging.gate.verdict import exit_code


@dataclass(frozen=True)
class Push:
    """A commit about to be pushed, and the tip of the remote's main branch as last known; None if it has none yet."""

    head: str
    base: str | None
    is_news: bool = True


def pushed(
    repository: Repository,
    environ: Mapping[str, str],
    *,
    remote: str | None,
    lines: Sequence[str],
    main_branch: str,
) -> list[Push]:
    """The pushed commits, each once, from pre-commit's variables or git's standard input.

    ``remote`` is the first argument of git's hook, None if git did not call us. Without either, the push is HEAD
    (``pre-commit run --hook-stage pre-push``). Sources: githooks(5), pre-push; pre-commit.com, "pre-push".
    """
    revision_by_pre_commit = environ.get("PRE_COMMIT_TO_REF") or environ.get(
        "PRE_COMMIT_LOCAL_BRANCH"
    )
    if revision_by_pre_commit:
        revisions = [revision_by_pre_commit]
    elif remote is not None:
        revisions = [fields[1] for line in lines if len(fields := line.split()) == 4]
    else:
        revisions = ["HEAD"]
    name = remote or environ.get("PRE_COMMIT_REMOTE_NAME") or "origin"
    # A push to a bare URL is judged too, against the main branch of origin.
    main = repository.main_of(name, main_branch) or repository.main_of(
        "origin", main_branch
    )
    base = main or repository.fetch_main(name, main_branch)
    heads = dict.fromkeys(
        repository.resolve(revision) for revision in revisions if revision.strip("0")
    )
    return [
        Push(head, base, base is None or not repository.holds(base, head))
        for head in heads
    ]


def hook_code(decision: DecisionDocument, *, strict: bool) -> int:
    """The hook's exit code, which makes git continue or stop: a regression stops the push, as does code that does not run.

    An undecided check, for lack of time or on a noisy machine, stops it only if ``strict``: the developer cannot do anything
    about it, and CI judges the change again.
    """
    code = exit_code(decision)
    if strict or code not in (EXIT_INCONCLUSIVE, EXIT_MEASURING):
        return code
    broken = [failure for failure in decision.gaps.failures if not _lacks_time(failure)]
    return EXIT_MEASURING if broken and code == EXIT_MEASURING else EXIT_PASS


def _lacks_time(failure: Failure) -> bool:
    return failure.error.lacks_time_for_pairs or failure.error.message == TIME_SPENT
