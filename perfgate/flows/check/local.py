"""``perfgate local --hook``: judge the commits that a ``git push`` is about to send.

Without ``--hook`` the command is ``check_change`` of the work tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfgate.config import load_config
from perfgate.document.decision import DecisionDocument
from perfgate.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_MEASURING,
    EXIT_PASS,
    MachineBusyError,
)
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.options import FIRST_STEPS, CheckOptions
from perfgate.git.repository import Repository
from perfgate.judging.gate.verdict import exit_code
from perfgate.locale import sentence

# Checks the project by these options.
Judge = Callable[[CheckOptions], DecisionDocument]
# Shows a decision with the exit code that follows from it, and the folder of the check.
Show = Callable[[DecisionDocument, int, Path], None]


@dataclass(frozen=True)
class GitPush:
    """The arguments and the standard input of git's pre-push hook; without ``remote``
    git did not call us.

    If ``strict`` the push is stopped also if the verdict is undecided.
    """

    remote: str | None = None
    lines: Sequence[str] = ()
    strict: bool = False


def judge_push(
    directory: Path,
    push: GitPush,
    options: CheckOptions,
    doors: Doors,
    judge: Judge,
    show: Show,
) -> int:
    """Check each pushed commit; return the exit code of the first that must not be."""
    if options.steps is None:
        # A push waits for the check, so most informational steps are omitted.
        options = replace(options, steps=FIRST_STEPS)
    main_branch = load_config(directory).store.main_branch
    commits = pushed(
        Repository(directory),
        doors.environ,
        remote=push.remote,
        lines=push.lines,
        main_branch=main_branch,
    )
    codes = [EXIT_PASS]
    for number, commit in enumerate(commits, start=1):
        base = options.base or commit.base
        if base is None:
            doors.say(
                "perfgate: "
                + sentence("nothing to compare with yet, the remote has no main branch")
            )
        elif not commit.is_news:
            text = sentence(
                "nothing to judge, {head} is in {base} already",
                head=commit.head[:12],
                base=commit.base,
            )
            doors.say(f"perfgate: {text}")
        else:
            out = options.out
            if len(commits) > 1:
                out /= str(number)
            of_commit = replace(options, head=commit.head, base=base, out=out)
            try:
                decision = judge(of_commit)
            except MachineBusyError as error:
                if push.strict:
                    raise
                doors.say(f"perfgate: INCONCLUSIVE: {error.shown}")
                continue
            codes.append(hook_code(decision, strict=push.strict))
            show(decision, codes[-1], out)
    return next(filter(None, codes), EXIT_PASS)


@dataclass(frozen=True)
class Push:
    """A commit about to be pushed, and the tip of the remote's main branch as last
    known; None if it has none yet.
    """

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
    """The pushed commits, each once, from pre-commit's variables or git's standard
    input.

    ``remote`` is the first argument of git's hook, None if git did not call us. Without
    either, the push is HEAD (``pre-commit run --hook-stage pre-push``). Sources:
    githooks(5), pre-push; pre-commit.com, "pre-push".
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
    """The hook's exit code, which makes git continue or stop: a regression stops the
    push, as does code that does not run.

    An undecided check, for lack of time or on a noisy machine, stops it only if
    ``strict``: the developer cannot do anything about it, and CI judges the change
    again.
    """
    code = exit_code(decision)
    if strict or code not in (EXIT_INCONCLUSIVE, EXIT_MEASURING):
        return code
    if code == EXIT_MEASURING:
        for failure in decision.gaps.failures:
            if not failure.error.lacks_time:
                return EXIT_MEASURING
    return EXIT_PASS
