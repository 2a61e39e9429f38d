"""``perfgate local``: the verdict of CI before anything leaves this machine, on the work tree or on the commits of a push."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfgate.config import load_config
from perfgate.document.decision import DecisionDocument
from perfgate.errors import EXIT_PASS, MachineBusyError
from perfgate.flows.check.hook import hook_code, pushed
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
    """The arguments and the standard input of git's pre-push hook; without ``remote`` git did not call us.

    If ``strict`` the push is stopped also if the verdict is undecided.
    """

    remote: str | None = None
    lines: Sequence[str] = ()
    strict: bool = False


def judge_work_tree(
    options: CheckOptions, judge: Judge, show: Show
) -> DecisionDocument:
    """Check the work tree, with uncommitted changes, against the main branch."""
    decision = judge(replace(options, work_tree=True))
    show(decision, exit_code(decision), options.out)
    return decision


def judge_push(
    directory: Path,
    push: GitPush,
    options: CheckOptions,
    doors: Doors,
    judge: Judge,
    show: Show,
) -> int:
    """Check each commit that is pushed, and return the exit code of the first that must not be."""
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
