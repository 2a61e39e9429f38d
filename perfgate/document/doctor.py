"""The results of `perfgate doctor`: how fit the machine is, and whether the gate
detects planted changes.
"""

from __future__ import annotations

from typing import Literal

from perfgate.document.decision import Verdict
from perfgate.document.message import Message
from perfgate.document.records import FrozenStruct
from perfgate.document.shape import ShapeEntry

FitnessStatus = Literal["ok", "attention", "unfit", "unavailable"]
PlantedOutcome = Literal["agrees", "differs", "too_busy"]


class FitnessCheck(FrozenStruct):
    """One property of the machine: the observation, and the advice.

    ``attention`` costs precision, ``unfit`` means that measuring is impossible,
    ``unavailable`` that the state is unknown; none of the three is ok. Texts are a
    device's own.
    """

    name: str
    status: FitnessStatus
    seen: Message | str
    remedy: Message | str | None = None


class PlantedResult(FrozenStruct, kw_only=True):
    """The gate's answer to one planted change.

    ``metric`` must regress; None for a change that must pass; ``fired`` are the metrics
    that regressed and count; ``line`` is the source line named with the metric.
    ``verdict`` is None if the check ended without a decision. ``outcome`` is
    ``too_busy`` if the clock on this machine could decide neither way. ``seconds`` is
    the duration of the gate.
    """

    name: str
    title: str
    expected: Verdict
    metric: str | None
    verdict: Verdict | None
    exit_code: int
    fired: list[str]
    line: str | None
    outcome: PlantedOutcome
    reason: str | None
    seconds: float


class Resolution(ShapeEntry, kw_only=True):
    """The smallest slowdown of one metric that this machine shows in 95 of 100 gates;
    None if the pairs are too few.

    Shares of the base. ``spread`` is the robust standard deviation of one pair's
    effect, ``pairs`` how many there were, ``seconds`` the duration of the whole gate,
    ``timed`` how many of them were timed blocks of base and head.
    """

    metric: str
    pairs: int
    spread: float
    smallest: float | None
    seconds: float
    timed: float


class DoctorDocument(FrozenStruct, kw_only=True):
    """All results.

    ``planted`` is empty if only the machine was examined, or if it is unfit.
    """

    schema: Literal["perfgate/doctor"] = "perfgate/doctor"
    schema_version: int = 1
    perfgate_version: str
    fitness: list[FitnessCheck]
    planted: list[PlantedResult] = []
    resolutions: list[Resolution] = []
