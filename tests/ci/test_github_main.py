"""What our GitHub workflows make of main: each run is kept, a pull request is shown beside them, and each week is told."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from io import BytesIO

import numpy as np
import pytest

from perfgate.document.history import Confirmation
from perfgate.judging.store.runs import record_run, stored_run, stored_runs
from perfgate.judging.store.store import Store, StorePlace, open_location
from tests.ci.act import Hub
from tests.fakes.history import on_another_day

pytestmark = [
    pytest.mark.skipif(shutil.which("act") is None, reason="make test-ci installs act"),
]
SLOW = ("y = self.layer(x)\n", "y = sum(self.layer(x) for _ in range(20)) / 20\n")
SLOWER = ("range(20)) / 20", "range(80)) / 80")
# How much longer a call takes after each, as the runs that are planted have it.
TIMES_SLOWER = 4.0


class Past:
    """Main's commits and its runs in the data branch.

    One is really measured, and kept by the workflows; the others are that run, as earlier and later days would have left it, so
    that a test need not measure for weeks.
    """

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.commits: list[str] = []
        self.store: Store = open_location(
            "branch://perfgate-data", StorePlace(hub.clone.root, {"PERFGATE_STORE_REMOTE": str(hub.server)})
        )
        self._random = np.random.default_rng(7)

    def commit(self, message: str, **changes: tuple[str, str]) -> None:
        """Commit to main and push it."""
        self.hub.clone.git("checkout", "-q", "main")
        self.commits.append(self.hub.clone.commit(message, **changes))
        self.hub.clone.git("push", "-q", "origin", "main")

    def plant(self, real: int, levels: dict[int, float]) -> None:
        """Keep runs of commits, a day apart from each other: each has a level, of which the one that was measured is 1."""
        (stored,) = [run for run in stored_runs(self.store, "small") if run.commit == self.commits[real]]
        run = stored_run(self.store, "small", stored.id)
        for number, level in levels.items():
            factor = level * float(np.exp(self._random.normal(0, 0.01)))
            record_run(self.store, on_another_day(run, self.commits[number], days=number - real, factor=factor))


def test_main__two_regressions_a_week_apart__each_measured_once_and_confirmed_and_the_next_change_shown_beside_them(
    hub: Hub,
) -> None:
    hub.start()
    past = Past(hub)
    for number in range(10):
        past.commit(f"change {number}", **({"model": SLOW} if number == 7 else {}))
    _measure_and_keep(hub)
    assert [run.commit for run in stored_runs(past.store, "small")] == [hub.main]
    past.plant(9, {**dict.fromkeys(range(7), 1 / TIMES_SLOWER), 7: 1.0, 8: 1.0})
    assert _weekly(hub) == [f"{past.commits[6][:10]} against {past.commits[7][:10]}"]
    (issue,) = hub.forge.issues
    assert _causes(issue.body, "Worse") == [(past.commits[7][:10], "confirmed")]
    assert hub.forge.comments == {}

    for number in range(10, 16):
        past.commit(f"change {number}", **({"model": SLOWER} if number == 13 else {}))
    past.plant(9, {**dict.fromkeys(range(10, 13), 1.0), **dict.fromkeys(range(13, 16), TIMES_SLOWER)})
    assert _weekly(hub) == [f"{past.commits[12][:10]} against {past.commits[13][:10]}"]
    assert hub.forge.issues == [issue]
    assert "last report on the runs up to" in issue.body
    assert _causes(issue.body, "Worse") == [(past.commits[13][:10], "confirmed")]
    assert _causes(issue.body, "Still open") == [(past.commits[7][:10], "confirmed")]
    (news,) = hub.forge.comments[issue.number]
    assert past.commits[13][:10] in news.body
    assert {one.after for one in past.store.entries("small", Confirmation)} == {past.commits[7], past.commits[13]}

    # Beside its base the next change is none; what nobody accepted is no part of main's level, and so it lies above that.
    hub.change("a word", model=("def build", "WORD = 'build'\n\n\ndef build"))
    done = hub.pull_request("opened")
    assert done.jobs == {"measure": "succeeded", "publish": "succeeded"}, done.log
    (comment,) = hub.comments()
    # In the row of step 1, or in the line below the table where another clock leads that row on a busy machine.
    assert re.search(r"\(7 runs[^|]*\)( \| [^|]*)?; \*\*head [^|]*, above [^|]* to [^|]*\*\*", comment)
    assert {"latency.p50": 7, "latency.p90": 7}.items() <= _above_main(hub).items()


def _measure_and_keep(hub: Hub) -> None:
    """Run what a push to main starts, and what the end of that starts."""
    done = hub.push()
    assert done.jobs == {"measure": "succeeded"}, done.log
    assert hub.server_git("branch", "--list", "perfgate-data") == ""
    done = hub.workflow_run("completed.no-pr", of=hub.last, event="push", conclusion="success")
    assert done.jobs == {"baseline": "succeeded"}, done.log
    assert "kept run" in done.of("baseline")


def _weekly(hub: Hub) -> list[str]:
    """Run what the clock starts; return which commits were measured against each other."""
    done = hub.schedule()
    assert done.jobs == {"measure": "succeeded", "weekly": "succeeded"}, done.log
    assert [one.name for one in hub.artifacts][-1] == "perfgate-default-1-trend"
    return re.findall(r"^measuring (.*) \(\d+ of \d+\)$", done.of("measure"), flags=re.MULTILINE)


def _causes(report: str, heading: str) -> list[tuple[str, str]]:
    """Return what a part of the report says of each cause: the commit, and how sure it is."""
    section = report.partition(f"### {heading}\n")[2].partition("\n#")[0]
    return [
        (commit[0], "confirmed" if "**confirmed**" in line else line)
        for line in section.splitlines()
        if line.startswith("**") and (commit := re.search(r"\b[0-9a-f]{10}\b", line))
    ]


def _above_main(hub: Hub) -> dict[str, int]:
    """Return what lies above the range of main's stored runs in the measuring job's decision, each with their number."""
    artifact = [one for one in hub.artifacts if one.name == "perfgate-default-1"][-1]
    with zipfile.ZipFile(BytesIO(artifact.data)) as archive:
        decision = json.loads(archive.read("decision.json"))
    return {
        one["metric"]: one["runs"]
        for one in decision["checklist"]["stored"]
        if one["interval"] and one["head"] > one["interval"][1]
    }
