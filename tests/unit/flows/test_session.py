from pathlib import Path

import pytest

from perfgate.config import parse_config
from perfgate.document import run as records
from perfgate.document import testbed
from perfgate.flows.shared.session import assemble_run, start_session
from tests.wording import worded


def _run(observed: dict[str, str], folder: Path) -> records.RunDocument:
    return assemble_run(
        parse_config('workload = "w.py:w"', folder / "perfgate.toml"),
        session=start_session("run", 1, None),
        source=records.Source(),
        testbed=testbed.Testbed(fingerprint="0", device_kind="npu", comparable={}, observed=observed),
        findings=[],
        folder=folder,
    )


@pytest.mark.parametrize(("health", "warned"), [("Alarm", True), ("Warning", True), ("OK", False), (None, False)])
def test_put_together__card_that_is_not_healthy__is_a_warning_of_the_run(
    health: str, warned: bool, tmp_path: Path
) -> None:
    run = _run({"device.health": health} if health else {}, tmp_path)
    assert any(f"reports health {health}" in warning for warning in worded(run.warnings)) == warned
