"""Ask the advisors that plug-ins add about a run's recordings."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

from perfgate.document.run import RunDocument
from perfgate.judging.advice.advisor import Advised, Advisor
from perfgate.locale import sentence
from perfgate.plugins import ADVISOR_PACKAGE, ADVISORS, load_plugins

if TYPE_CHECKING:
    from perfgate.conductor.workers.worker import Say

# The tables in a folder of Ascend's profiler.
_ASCEND_TABLES = "ASCEND_PROFILER_OUTPUT"


def advise_profile(profile: Path, workload: str, say: Say) -> Advised:
    """Ask all advisors about a recording. Without one, name the package that analyses a
    folder of Ascend's profiler.
    """
    advisors = cast(list[Advisor], load_plugins(ADVISORS))
    if not advisors and (
        profile.name == _ASCEND_TABLES or next(profile.rglob(_ASCEND_TABLES), None)
    ):
        say(
            sentence(
                "no advisor is installed for this recording (pip install {package})",
                package=ADVISOR_PACKAGE,
            )
        )
    advised = Advised([], [])
    for advisor in advisors:
        advisories, warnings = advisor.advise(profile, workload, say)
        advised.found.extend(advisories)
        advised.warnings.extend(warnings)
    return advised


def advise_run(run: RunDocument, folder: Path, say: Say) -> Advised:
    """Ask all advisors about the packed recordings among a run's artifacts; each
    problem once per workload.
    """
    advised = Advised([], [])
    for artifact in run.traces:
        path = folder / artifact.path
        if artifact.workload is None or not zipfile.is_zipfile(path):
            continue
        with tempfile.TemporaryDirectory(prefix="perfgate-advisor-") as scratch:
            with zipfile.ZipFile(path) as packed:
                packed.extractall(scratch)
            hints, warnings = advise_profile(Path(scratch), artifact.workload, say)
        problems = {
            (advisory.workload, advisory.category) for advisory in advised.found
        }
        for advisory in hints:
            if (advisory.workload, advisory.category) not in problems:
                advised.found.append(advisory)
        for warning in warnings:
            if warning not in advised.warnings:
                advised.warnings.append(warning)
    return advised
