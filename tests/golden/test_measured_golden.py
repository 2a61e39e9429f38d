"""From the conductor's loop to the comment, for each verdict: nothing between the fake device and the text is made by hand.

Rewrite the files with PERFGATE_WRITE_GOLDEN=1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
import pytest

from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument, Policy, Verdict
from perfgate.document.files import read_run, write_document
from perfgate.document.history import Acceptance, History
from perfgate.document.message import quote
from perfgate.judging.gate.decide import decide
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.causes import feeding
from tests.fakes.device import FakeDevice
from tests.fakes.documents import HEAD_COMMIT
from tests.golden.kept import compare
from tests.golden.test_one_count import MOST_FOLDS, assert_one_number_of_regressions, texts_of
from tests.traps.virtual import MS, US, Call, Side, VirtualGate, with_counts

DATA = Path(__file__).parent / "data"
CONTEXT = CommentContext(
    marker="<!-- perfgate:v1:demo -->",
    artifact_url="https://forge.example/demo/actions/runs/1/artifacts/2",
    job_url="https://forge.example/demo/actions/runs/1",
    reproduce="perfgate local --base a1b2c3d4e5f6",
)
POLICY = Policy(looks=[16])
ACCEPTED = History(
    accepted=[
        Acceptance(
            commit=HEAD_COMMIT,
            metric="*",
            reason="twice the layers",
            accepted_by="mei",
            accepted_at="2026-08-01T10:00:00Z",
        )
    ]
)


class Situation(NamedTuple):
    """What both sides call, and the verdict that must come of it; ``history`` is that of main."""

    verdict: Verdict
    base: Side
    head: Side
    history: History = History()


def steady(ns: int) -> Side:
    """Return a side of so many nanoseconds a call."""
    return lambda: lambda device: device.launch("aten::mm", ns)


def wild(seed: int) -> Side:
    """Return a side whose processes differ by a tenth."""
    random = np.random.default_rng(seed)

    def make() -> Call:
        ns = round(MS * float(np.exp(random.normal(0.0, 0.1))))
        return lambda device: device.launch("aten::mm", ns)

    return make


SITUATIONS: dict[str, Callable[[], Situation]] = {
    "pass": lambda: Situation("PASS", steady(MS), steady(MS)),
    "pass-faster": lambda: Situation("PASS", steady(MS), steady(MS - 60 * US)),
    "fail-by-the-clock": lambda: Situation("FAIL", steady(MS), steady(MS + 60 * US)),
    "fail-by-a-copy": lambda: Situation("FAIL", lambda: feeding.ahead, lambda: feeding.waiting),
    "warn-accepted": lambda: Situation("WARN", steady(MS), steady(MS + 60 * US), ACCEPTED),
    "inconclusive": lambda: Situation("INCONCLUSIVE", wild(1), wild(2)),
}


def measured(situation: Situation, folder: Path) -> DecisionDocument:
    """Measure pairs and counts of both sides, write and read their documents, and judge those."""
    seeds = count()
    gate = VirtualGate(
        situation.base, situation.head, device=lambda: FakeDevice(noise=0.01, seed=next(seeds)), policy=POLICY
    )
    sides = zip(("base", "head"), gate.documents(), (situation.base(), situation.head()))
    for side, document, call in sides:
        counted = with_counts(document, call, folder / f"{side}-trace", root=Path(feeding.__file__).parent)
        write_document(folder / f"{side}.json", counted)
    base, head = read_run(folder / "base.json"), read_run(folder / "head.json")
    return decide(base, head, policy=POLICY, history=situation.history, chosen_because=quote("merge-base with main"))


@pytest.mark.parametrize("name", SITUATIONS)
def test_comment__measured_on_the_fake_device__is_the_golden_text_and_has_one_count(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Once another test has loaded the compiler, its graph breaks and recompilations are counted too.
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    situation = SITUATIONS[name]()
    decision = measured(situation, tmp_path)
    assert decision.verdict == situation.verdict
    # Of time comparisons alone where the counts are equal: a verdict that rests on the clock.
    if name in ("fail-by-the-clock", "pass-faster"):
        moved = {type(c) for c in decision.comparisons if c.gating and c.outcome in ("regressed", "improved")}
        assert moved == {Paired}
    texts = texts_of(decision)
    assert_one_number_of_regressions(decision, texts)
    assert texts["comment"].count("<details>") <= MOST_FOLDS
    compare(_of_any_run(render_comment(decision, CONTEXT)), DATA / f"measured-{name}.md")


def _of_any_run(text: str) -> str:
    """Return a comment without what differs between processes and interpreters.

    Documents hold what is this process's own, its page faults for instance, and every version of Python has bytecodes of its
    own, and grows by some bytes of its own.
    """
    text = re.sub(r"sha256 `[0-9a-f]{64}`", "sha256 `…`", text)
    return re.sub(
        r"(\| (?:Python \w+ per call|memory of Python a call leaves behind) [^|]*)\|[^|]*\|[^|]*\|[^|]*\|",
        r"\1| … | … | … |",
        text,
    )


def test_golden_files__folder__holds_no_measured_file_without_a_situation() -> None:
    assert {path.name for path in DATA.glob("measured-*.md")} == {f"measured-{name}.md" for name in SITUATIONS}


def test_situations__verdicts__all_that_a_measurement_can_have() -> None:
    assert {make().verdict for make in SITUATIONS.values()} == {*get_args(Verdict)} - {"SKIPPED"}
