"""``perfgate local --hook``: which commits a ``git push`` is about to send, and whether what was found out lets it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfgate.document.decision import DecisionDocument, Failure
from perfgate.document.message import Message
from perfgate.document.run import TIME_SPENT, TOO_SLOW
from perfgate.errors import EXIT_INCONCLUSIVE, EXIT_MEASURING, EXIT_PASS
from perfgate.git.repository import Repository
from perfgate.judging.gate.verdict import exit_code


@dataclass(frozen=True)
class Push:
    """A commit on its way to a remote, and the remote's main branch as far as we know it; None where it has none yet."""

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
    """What is pushed, each commit once: what pre-commit says in its variables, or git on standard input.

    ``remote`` is the first argument of git's hook, None where git did not call us. Without any word of a push it is what is
    checked out (``pre-commit run --hook-stage pre-push``). Sources: githooks(5), pre-push; pre-commit.com, "pre-push".
    """
    revision_by_pre_commit = environ.get("PRE_COMMIT_TO_REF") or environ.get("PRE_COMMIT_LOCAL_BRANCH")
    if revision_by_pre_commit:
        revisions = [revision_by_pre_commit]
    elif remote is not None:
        revisions = [fields[1] for line in lines if len(fields := line.split()) == 4]
    else:
        revisions = ["HEAD"]
    name = remote or environ.get("PRE_COMMIT_REMOTE_NAME") or "origin"
    # A push to a mere address is judged too, against what everybody's is.
    known = repository.main_of(name, main_branch) or repository.main_of("origin", main_branch)
    base = known or repository.fetch_main(name, main_branch)
    heads = dict.fromkeys(repository.resolve(revision) for revision in revisions if revision.strip("0"))
    return [Push(head, base, base is None or not repository.holds(base, head)) for head in heads]


def hook_code(decision: DecisionDocument, *, strict: bool) -> int:
    """The exit code by which git goes on or not: a regression stops a push, and code that does not run.

    What could not be decided, for lack of time or on a machine that was not quiet enough, stops it only where that was
    asked for: whoever pushes can do nothing about it, and CI judges the change again.
    """
    code = exit_code(decision)
    if strict or code not in (EXIT_INCONCLUSIVE, EXIT_MEASURING):
        return code
    broken = [failure for failure in decision.failures if not _lacks_time(failure)]
    return EXIT_MEASURING if broken and code == EXIT_MEASURING else EXIT_PASS


def _lacks_time(failure: Failure) -> bool:
    message = failure.error.message
    return isinstance(message, Message) and message.code in (TIME_SPENT.code, TOO_SLOW)
