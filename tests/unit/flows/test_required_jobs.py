"""Which of main's stored runs tells what a program must report."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perfgate.config import Config, load_config
from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.document.run import RunDocument
from perfgate.document.testbed import fingerprint
from perfgate.flows.baseline import keep
from perfgate.flows.trust.grounds import required_of
from perfgate.judging.gate.decide import decide
from tests.fakes.jobs import Does, job_documents
from tests.fakes.records import changed

JOB = '[workloads.bench]\ncommand = "python bench.py"\n'
ALONE = "number.of_this_card_alone"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "perfgate.toml").write_text(f'project = "demo"\n[store]\npath = "runs.db"\n{JOB}', encoding="utf-8")
    return load_config(tmp_path)


def measured_on(run: RunDocument, card: str, kind: str = "cpu") -> RunDocument:
    comparable = {**run.testbed.comparable, "device.name": card}
    testbed = msgspec.structs.replace(
        run.testbed, comparable=comparable, fingerprint=fingerprint(comparable), device_kind=kind
    )
    return changed(run, testbed=testbed)


def of_main(run: RunDocument, day: int, *also: str) -> RunDocument:
    """A run of main, whose program reports these numbers too."""
    (record,) = run.jobs.records
    listed = [msgspec.structs.replace(record.numbers[0], metric=metric, gating=False) for metric in also]
    session = msgspec.structs.replace(run.session, id=f"main-{day}", started_at=f"2026-01-{day:02}T12:00:00Z")
    record = msgspec.structs.replace(record, numbers=[*record.numbers, *listed])
    turns = [
        msgspec.structs.replace(turn, values={**turn.values, **dict.fromkeys(also, 1.0)}) for turn in run.jobs.turns
    ]
    return changed(run, side=None, session=session, records=[record], turns=turns)


@pytest.mark.parametrize(
    ("stored", "is_required"),
    [
        # The newest run of the testbed tells, however new those of other cards are.
        ([("ours", "cpu", False), ("other", "cpu", True)], False),
        ([("other", "cpu", False), ("ours", "cpu", True)], True),
        # A new driver makes another testbed of the same kind.
        ([("other", "cpu", True)], True),
        ([("other", "npu", True)], False),
    ],
)
def test_required_of__number_that_a_program_reports_on_some_cards__of_this_testbed_or_its_kind(
    config: Config, stored: list[tuple[str, str, bool]], is_required: bool
) -> None:
    base, head = (measured_on(run, "ours") for run in job_documents(JOB, Does(), Does()))
    for day, (card, kind, has_number) in enumerate(stored, start=1):
        run = of_main(measured_on(base, card, kind), day, *([ALONE] if has_number else []))
        keep(config, {}, run, [], allow_dirty=False)
    required = required_of(config, base, {}, only=())
    assert (ALONE in required.jobs["bench"].numbers) == is_required
    decision = decide(base, head, policy=Policy(), history=History(), required=required)
    assert decision.verdict == ("INCONCLUSIVE" if is_required else "PASS")
