"""Whether a workload runs at all, what it is, and what a call of it does: before
anything is timed.
"""

from __future__ import annotations

import time

from perfgate.measuring.counting.again import count_again
from perfgate.measuring.timing.calls import timed_call
from perfgate.measuring.worker.correctness import check_outputs
from perfgate.measuring.worker.host_build import signature_of
from perfgate.measuring.worker.loaded import AnswersByRequest, LoadedWorkload
from perfgate.measuring.worker.packages import loaded_distributions
from perfgate.measuring.worker.trial import copies_that_fit, try_calls
from perfgate.protocol import (
    CallTimed,
    CheckReply,
    CheckRequest,
    Recounted,
    RecountRequest,
    Signature,
    SignatureRequest,
    TimeCallRequest,
    Tried,
    TryRequest,
)


class TrialAnswers:
    """Answers what is asked of a workload before it is timed."""

    def __init__(self, loaded: LoadedWorkload) -> None:
        self._loaded = loaded
        self._workload = loaded.workload
        self._device = loaded.workload.device
        self.answers: AnswersByRequest = {
            TryRequest: self._try,
            SignatureRequest: self._sign,
            TimeCallRequest: self._time_call,
            CheckRequest: self._check,
            RecountRequest: self._recount,
        }

    def _try(self, request: TryRequest) -> Tried:
        began = time.monotonic()
        failure = try_calls(self._workload)
        seconds = time.monotonic() - began
        packages = loaded_distributions() if request.packages else None
        if failure is not None:
            error = self._loaded.describe_error(failure.error)
            return Tried(
                failed=failure.part, shape=failure.shape, error=error, packages=packages
            )
        watching = None
        if self._loaded.line_watch is not None:
            watching = self._loaded.line_watch.run(self._workload, request.seconds)
        copies_fit = copies_that_fit(self._device)
        return Tried(
            seconds=seconds, packages=packages, watching=watching, copies_fit=copies_fit
        )

    def _sign(self, _: SignatureRequest) -> Signature:
        return signature_of(self._workload)

    def _time_call(self, _: TimeCallRequest) -> CallTimed:
        total_ns = 0
        for shape in self._workload.shapes:
            call = self._workload.caller(shape)
            call()  # it may compile
            self._device.synchronize()
            total_ns += timed_call(call, self._device)
        return CallTimed(seconds=total_ns / 1e9)

    def _check(self, _: CheckRequest) -> CheckReply:
        return CheckReply(results=check_outputs(self._workload))

    def _recount(self, request: RecountRequest) -> Recounted:
        return Recounted(counters=count_again(self._workload, parts=request.parts))
