"""What a run and its recording show of clocks that are wrong."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from perfgate.document.clocks import clock_difference_note, clock_notes
from perfgate.document.message import Message
from perfgate.judging.report.text.messages import word
from tests.unit.document.minimal import minimal_run

RECORDED = "2026-03-01T12:00:00+00:00"


@pytest.mark.parametrize(
    ("began", "ended", "committed", "codes"),
    [
        ("2026-03-01T11:50:00Z", "2026-03-01T11:59:00Z", "2026-03-01T11:00:00Z", []),
        # Recorded days later, as of a queue, or in another zone.
        ("2026-02-01T11:50:00Z", "2026-02-01T11:59:00Z", "2026-02-01T11:00:00Z", []),
        ("2026-03-01T13:50:00+02:00", "2026-03-01T13:59:00+02:00", "2026-03-01T11:00:00Z", []),
        # A minute is no wrong clock.
        ("2026-03-01T11:50:00Z", "2026-03-01T12:01:00Z", "2026-03-01T11:51:00Z", []),
        ("2026-03-01T13:50:00Z", "2026-03-01T15:00:00Z", "2026-03-01T11:00:00Z", ["ahead"]),
        ("1970-01-01T00:00:09Z", "1970-01-01T00:05:00Z", "2026-03-01T11:00:00Z", ["behind"]),
        ("2026-03-01T11:50:00Z", "2026-03-01T09:50:00Z", "2026-03-01T09:00:00Z", ["set-back"]),
        ("2026-03-01T15:50:00Z", "2026-03-01T09:50:00Z", "2026-03-01T09:00:00Z", ["set-back", "ahead"]),
        ("2026-03-01T11:50:00Z", "2026-03-01T11:59:00Z", None, []),
        ("yesterday", "2026-03-01T15:59:00Z", None, []),
    ],
)
def test_clock_notes__times_of_a_run__what_is_wrong(
    began: str, ended: str, committed: str | None, codes: list[str]
) -> None:
    run = minimal_run()
    run = msgspec.structs.replace(
        run,
        session=msgspec.structs.replace(run.session, started_at=began, finished_at=ended),
        source=msgspec.structs.replace(run.source, committed_at=committed),
    )
    assert [note.code for note in clock_notes(run, RECORDED)] == [f"notes.clock-{code}" for code in codes]


def test_clock_notes__hours_ahead__by_how_much_in_words() -> None:
    run = minimal_run()
    session = msgspec.structs.replace(run.session, finished_at="2026-03-01T15:00:00Z")
    (note,) = clock_notes(msgspec.structs.replace(run, session=session), RECORDED)
    assert note == Message("notes.clock-ahead", {"seconds": 10_800.0})
    assert "ended 3 h 0 m after it was recorded" in word(note)


@pytest.mark.parametrize(
    ("minutes", "code"),
    [(5, None), (-5, None), (6, "notes.store-clock-ahead"), (-6, "notes.store-clock-behind")],
)
def test_clock_difference_note__clock_of_the_store__which_one_is_ahead(minutes: int, code: str | None) -> None:
    notes = clock_difference_note(timedelta(minutes=minutes))
    assert [note.code for note in notes] == ([code] if code else [])
