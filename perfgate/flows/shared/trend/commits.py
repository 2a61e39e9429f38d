"""The commits of main between two runs, with author and change request, by the
project's clone.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from perfgate.document.trend import CommitLabel, TrendChange
from perfgate.errors import RepositoryError
from perfgate.flows.shared.trend.read import NameCommits
from perfgate.git.commands import COMMIT_ID, run_git
from perfgate.git.repository import is_behind, readable
from perfgate.judging.store.index import ProjectLog

MOST_COMMITS = 20
_GIT_SECONDS = 20.0
_COMMIT_FORMAT = "%H%x1f%an%x1f%s%x1f%b%x1e"
# References to the change request in commits of main: GitHub (squash and merge), Gitee;
# GitLab in the merge commit's body.
_REQUEST_IN_SUBJECT = re.compile(r"\((#\d+)\)$|^Merge pull request (#\d+) |^(!\d+) ")
_REQUEST_IN_BODY = re.compile(r"^See merge request [\w./-]*(!\d+)$", re.MULTILINE)


def commit_names(root: Path, log: ProjectLog) -> NameCommits:
    """Name the newest commits of a change, and those that people accepted or gave a
    state: these count for the change, however many came after them.
    """
    stated = {acceptance.commit for acceptance in log.acceptances}
    stated.update(triage.commit for triage in log.triages)
    answers: dict[tuple[str, str], list[CommitLabel]] = {}

    def name(change: TrendChange) -> TrendChange:
        good = change.last_good or ""
        bad = change.first_bad or ""
        if not (COMMIT_ID.fullmatch(good) and COMMIT_ID.fullmatch(bad)):
            return change
        if (good, bad) not in answers:
            answers[good, bad] = _commits_between(root, good, bad)
        labels = answers[good, bad]
        listed = labels[:MOST_COMMITS]
        listed += [label for label in labels[MOST_COMMITS:] if label.commit in stated]
        return msgspec.structs.replace(change, commits=listed, commit_count=len(labels))

    return name


def _commits_between(root: Path, good: str, bad: str) -> list[CommitLabel]:
    """Main's own commits after ``good`` up to ``bad``, newest first.

    Empty if history was rewritten or the clone is too shallow, because git would then
    list other commits, or only some.
    """
    command = [
        "log",
        "--first-parent",
        f"--format={_COMMIT_FORMAT}",
        f"{good}..{bad}",
        "--",
    ]
    try:
        if not is_behind(root, good, bad):
            return []
        listed = run_git(
            root, command, {"GIT_NO_LAZY_FETCH": "1"}, limit_seconds=_GIT_SECONDS
        )
    except RepositoryError:
        return []
    if listed.code:
        return []
    labels: list[CommitLabel] = []
    for entry in readable(listed.output).split("\x1e"):
        fields = entry.lstrip("\n").split("\x1f", 3)
        # A subject may contain a separator itself; that commit then has no label.
        if len(fields) != 4 or not COMMIT_ID.fullmatch(fields[0]):
            continue
        commit, author, subject, body = fields
        found = _REQUEST_IN_SUBJECT.search(subject) or _REQUEST_IN_BODY.search(body)
        request = ""
        if found:
            request = found[found.lastindex or 0]
        labels.append(
            CommitLabel(
                commit=commit,
                subject=subject[:200],
                author=author[:100],
                change_request=request,
            )
        )
    return labels
