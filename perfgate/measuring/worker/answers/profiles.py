"""Profiles and recordings of a few calls, and the lines at which slow calls are."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from perfgate.measuring.counting.profile import (
    OperatorProfile,
    SubroutineTimes,
    locate_stalls,
)
from perfgate.measuring.counting.tally import SourceLines
from perfgate.measuring.worker.loaded import AnswersByRequest, LoadedWorkload
from perfgate.protocol import (
    CallsRecorded,
    LocateStallsRequest,
    Profiled,
    ProfileRequest,
    ProfileSubroutinesRequest,
    ProfileTimes,
    ProfileTimesRequest,
    RecordRequest,
    StallsLocated,
    TraceRequest,
)
from perfgate.system.garbage import collector_off


class ProfileAnswers:
    """Profiles calls of a workload, and keeps the times until it is asked for them."""

    def __init__(self, loaded: LoadedWorkload) -> None:
        self._workload = loaded.workload
        self._device = loaded.workload.device
        self.answers: AnswersByRequest = {
            ProfileRequest: self._profile,
            ProfileSubroutinesRequest: self._profile_subroutines,
            ProfileTimesRequest: self._times,
            RecordRequest: self._record,
            TraceRequest: self._trace,
            LocateStallsRequest: self._locate_stalls,
        }

    @cached_property
    def _operators(self) -> OperatorProfile:
        return OperatorProfile(self._workload)

    @cached_property
    def _subroutines(self) -> SubroutineTimes:
        return SubroutineTimes(self._workload)

    def _profile(self, request: ProfileRequest) -> Profiled:
        with collector_off():
            self._operators.run(request.shape, calls=request.calls)
        return Profiled()

    def _profile_subroutines(self, request: ProfileSubroutinesRequest) -> Profiled:
        with collector_off():
            self._subroutines.run(request.shape, calls=request.calls)
        return Profiled()

    def _times(self, _: ProfileTimesRequest) -> ProfileTimes:
        return ProfileTimes(
            operators=self._operators.typical_times(),
            subroutines=self._subroutines.typical_times(),
        )

    def _record(self, request: RecordRequest) -> CallsRecorded:
        with collector_off():
            recording = self._operators.leave(
                request.shape, calls=request.calls, folder=Path(request.folder)
            )
        return CallsRecorded(recording=str(recording))

    def _trace(self, request: TraceRequest) -> CallsRecorded:
        call = self._workload.caller(request.shape)
        folder = Path(request.folder)
        with collector_off():
            # The consumer reads the file; reading it here would double the time.
            file = self._device.record_trace(
                call, calls=request.calls, folder=folder, name=request.name
            )
        return CallsRecorded(recording=str(file))

    def _locate_stalls(self, request: LocateStallsRequest) -> StallsLocated:
        samples = locate_stalls(
            self._workload.caller(request.shape),
            self._device,
            SourceLines(self._workload.root),
            longer_than=request.longer_than,
            calls=request.calls,
            seconds=request.seconds,
        )
        return StallsLocated(samples=samples)
