"""Give a regression of main a state: acknowledged, fixed, expected, or new again."""

from __future__ import annotations

from perfgate.document.history import Triage, TriageState
from perfgate.errors import UsageError
from perfgate.flows.shared.session import now
from perfgate.judging.store.store import LOCAL, Store

_MOST_REASON, _MOST_AUTHOR = 1_000, 100


def give_state(
    store: Store,
    project: str,
    *,
    commit: str,
    state: TriageState,
    reason: str,
    author: str,
    actor: str = LOCAL,
) -> Triage:
    """Store the state of the regressions that began with a commit, for a writer of the audit log.

    Raises UsageError without a reason or an author.
    """
    triage = Triage(
        commit=commit,
        state=state,
        reason=_one_line(reason),
        author=_one_line(author),
        changed_at=now(),
    )
    if not triage.author:
        raise UsageError("give the name of the person who changes the state")
    if not triage.reason and state != "new":
        raise UsageError(
            "give the reason for the state {state!r}; the weekly report and the pages show it",
            state=state,
        )
    if len(triage.reason) > _MOST_REASON or len(triage.author) > _MOST_AUTHOR:
        raise UsageError(
            "the reason may have {reason} characters and the name {author}",
            reason=_MOST_REASON,
            author=_MOST_AUTHOR,
        )
    store.append(project, [triage], actor=actor)
    return triage


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", " ").split())
