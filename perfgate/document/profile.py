"""A profile of the Python code of a job: the stacks of its processes, sampled in turns that serve no other purpose."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from perfgate.document.records import FrozenStruct

ProfileUnit = Literal["token", "request", "step", "run"]
# Years, and the largest integer that JSON numbers represent exactly.
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class CalledFunction(FrozenStruct, kw_only=True):
    """A function of the project that a call runs: lines ``first`` to ``last`` of its file.

    ``callers`` are the lines of the project from which it is called (``model.py:88``), the most frequent first; frames in
    between, such as the framework's own code, are left out.
    """

    name: str
    file: str
    first: int
    last: int
    callers: list[str] = []


class ProfiledLine(FrozenStruct, kw_only=True):
    """A line of the project, with the time of all its calls into other code, in seconds per unit.

    ``cpu`` is CPU time, ``waited`` how long the line itself slept or waited, and ``samples`` how many samples of either there
    are. ``code`` is the text of the line, by which the lines of two sides are matched. ``function`` is the qualified name.
    """

    function: str
    line: str
    cpu: Amount
    waited: Amount
    samples: Number
    code: str = ""


class ProfiledOperator(FrozenStruct, kw_only=True):
    """An operator that a function of the project calls: how often in a unit, and the seconds of all calls in one.

    Seconds are the device's work, if any was recorded (``on_device``), else of the host, without calls that
    lie far above the others; ``spread`` is the standard deviation of a single call of these. ``line`` is the beginning of the
    function; ``function`` and ``line`` are empty for an operator that no function of the project calls.
    """

    name: str
    function: str
    line: str
    calls: Amount
    seconds: Amount
    spread: Amount
    on_device: bool = False


class JobProfile(FrozenStruct, kw_only=True):
    """The profile of one side of a job: evidence for a cause, and never for the verdict.

    ``units`` are how many tokens, requests, steps or runs were profiled, and ``seconds`` how long one took. ``cpu`` is the CPU
    time of all Python threads in one. ``lines`` are the heaviest; ``functions`` are those that were seen, with their callers.
    ``operators`` cover ``operator_units`` units, which torch.profiler or one of the program's own recorded afterwards.
    """

    workload: str
    per: ProfileUnit
    units: Number
    seconds: Amount
    cpu: Amount
    lines: list[ProfiledLine] = []
    functions: list[CalledFunction] = []
    operators: list[ProfiledOperator] = []
    operator_units: Number = 0
