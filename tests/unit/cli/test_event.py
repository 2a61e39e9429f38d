"""The variables that describe the event of a CI that perfgate does not know."""

from __future__ import annotations

from perfgate.document.run import CiContext
from perfgate.flows.shared.session import ci_context


def test_ci_context__event_given__the_measuring_job_keeps_what_publish_checks() -> None:
    told = {
        "PERFGATE_FORGE": "github",
        "PERFGATE_REPOSITORY": "team/model",
        "PERFGATE_CHANGE_REQUEST": "7",
        "PERFGATE_HEAD_SHA": "a" * 40,
        "PERFGATE_RUN_ID": "123",
        "PERFGATE_RUN_ATTEMPT": "2",
    }
    assert ci_context(told) == CiContext(
        forge="github", repository="team/model", run_id="123", run_attempt=2, head_sha="a" * 40, change_request=7
    )
