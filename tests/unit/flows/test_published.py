"""The exit code of a judged artifact, which a forge's job ends with."""

from __future__ import annotations

import pytest

from perfgate.errors import DocumentError, MeasuringError
from perfgate.flows.publish.published import JudgedArtifact
from perfgate.judging.report.view.summary import CommentContext
from tests.fakes.documents import make_decision


@pytest.mark.parametrize(
    ("error", "expected"),
    [(None, 1), (DocumentError("damaged"), 2), (MeasuringError("no device"), 4), (RuntimeError("a bug"), 5)],
)
def test_exit_code__judging_ended_with_an_error__the_errors_own(error: Exception | None, expected: int) -> None:
    artifact = JudgedArtifact(make_decision("FAIL"), CommentContext(), error=error)
    assert artifact.exit_code == expected
