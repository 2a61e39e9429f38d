"""A workload that this process has loaded, as all requests about it need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from perfgate.document.run import ErrorDetail
from perfgate.locale import Activity
from perfgate.measuring.checklist.mistakes import ProjectCode
from perfgate.measuring.worker.spawn import Holdings
from perfgate.measuring.worker.trial import TrialWatch
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.protocol import LoadRequest

# By its type, what answers a request.
AnswersByRequest = Mapping[type[msgspec.Struct], Callable[[Any], msgspec.Struct]]


@dataclass(frozen=True)
class LoadedWorkload:
    """A workload on its device, and the worker around it.

    ``before`` is the state of the process before it loaded the workload. ``say``
    reports the current activity to the conductor, ``announce_experiment`` the beginning
    of an experiment.
    """

    request: LoadRequest
    workload: BoundWorkload
    before: Holdings
    line_watch: TrialWatch | None
    say: Callable[[Activity], None]
    announce_experiment: Callable[[], None]
    describe_error: Callable[[BaseException], ErrorDetail]

    @property
    def project(self) -> ProjectCode:
        return ProjectCode(
            self.workload.root, self.request.python_path, self.workload.device.kind
        )
