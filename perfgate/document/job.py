"""The results of a job: a server, ranks or a command of base and head that took turns,
with numbers and raw samples.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Annotated, Literal

import msgspec
import numpy as np

from perfgate.catalogue.names import RANKS_CPU, RANKS_MEMORY
from perfgate.document.records import FrozenStruct
from perfgate.document.samples import SampleSet, unpack

JobKind = Literal["command", "ranks", "server"]
# The name in a command's turns for the lines of Python that a run executes.
PYTHON_LINES = "python_lines"
# The quantiles of all requests, steps or samples of a job that are reported.
QUANTILES = (0.5, 0.9, 0.99)
# These have one sample a turn.
_OF_A_TURN = {RANKS_CPU, RANKS_MEMORY}
# How the two sides of a job share the devices.
Fits = Literal["resident", "sleep", "swap", "alternate"]
# Of one turn, so that the sums of turns stay within 64 bits; below 0 if a server starts
# its counters anew.
TurnCount = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]


class JobNumber(FrozenStruct, kw_only=True):
    """One number that every turn of a job has, in base units; ``gating`` is whether the
    verdict rests on it.
    """

    metric: str
    unit: str
    better: Literal["lower", "higher"]
    gating: bool = True


class JobRecord(FrozenStruct, kw_only=True):
    """The job as it was measured: its start, and the numbers of its turns.

    ``reference`` is the line that starts it and ``sha256`` the hash of all its
    settings, the same on both sides. ``fits`` is how they shared the devices: both at
    once; the idle side asleep; each on one half and then on the other (``swap``: the
    later turns of a quad come after it); or in separate processes for every turn.
    ``rate`` is the highest rate, in requests per second, at which base met the SLA, if
    it was searched for.
    """

    name: str
    kind: JobKind
    reference: str
    sha256: str
    fits: Fits = "resident"
    rate: float | None = None
    numbers: list[JobNumber] = []

    @property
    def workload(self) -> str:
        """The name by which all entries about the job refer to it."""
        return self.name

    @property
    def is_server(self) -> bool:
        return self.kind == "server"

    @property
    def has_ranks(self) -> bool:
        return self.kind == "ranks"

    @property
    def is_command(self) -> bool:
        return self.kind == "command"

    @property
    def starts_afresh(self) -> bool:
        """Whether every turn has a fresh process, so that no two quads share the luck
        of a start.
        """
        return self.is_command or self.fits == "alternate"


class CollectiveCount(FrozenStruct, kw_only=True):
    """How often a rank called a collective, and the number of elements in all calls
    together.
    """

    name: str
    count: int
    elements: int


class RankCounts(FrozenStruct, kw_only=True):
    """The activity of one rank in ``steps`` profiled steps: operators, copies of one
    number to the host, collectives.

    If it could not be profiled there are 0 steps. ``calls`` is how often it called any
    collective, which shows whether one is missing. ``communication`` is how many
    seconds of a step it communicated, ``exposed`` for how many of these no kernel
    computed. ``by_name`` is how often each operator ran, without collectives.
    """

    rank: int
    steps: int
    operators: int = 0
    syncs: int = 0
    calls: int = 0
    collectives: list[CollectiveCount] = []
    communication: float = 0.0
    exposed: float = 0.0
    by_name: dict[str, int] = {}


class CpuTime(FrozenStruct, kw_only=True):
    """CPU time of all processes of a side while it worked for ``seconds``.

    ``used`` is how much they had, and ``waited`` how long their threads were ready to
    run while other threads had the CPUs, None if the kernel does not count that.
    """

    used: float
    waited: float | None = None
    seconds: float


class TurnResult(FrozenStruct, kw_only=True):
    """A side's results in one turn."""

    # Metric: its number in base units.
    values: dict[str, float]
    # Must be equal on both sides of a quad, such as ``requests`` and ``output_tokens``.
    work: dict[str, TurnCount] = {}
    # The SHA-256 of the output; empty if outputs are not compared.
    output: str = ""
    # Hashes of a server's answers to requests that are the same in every start, sent
    # before its first turn.
    texts: list[str] = []
    samples: list[SampleSet] = []
    # The ranks' activity in steps that were profiled before the first turn of a start,
    # outside its times.
    counts: list[RankCounts] = []
    # A server's own counts in the turn, under perfgate's names; with the last turns of
    # a command, how many lines of Python a run executes, counted after them: 0 if none,
    # or if they could not be counted.
    counters: dict[str, TurnCount] = {}
    # CPUs that the side used on average between its last turn and this one; None if
    # unknown.
    out_of_turn: float | None = None
    # How late requests were sent, as a share of their duration; None if none were sent.
    late: float | None = None
    # CPU time of the measured work; None for a command, whose CPU time is one of its
    # values.
    cpu: CpuTime | None = None
    # The SHA-256 of the requests; empty without any.
    requests: str = ""
    # Features that the server does not accept, so that requests went without them: a
    # field of perfgate, or ``keep-alive``.
    without: list[str] = []
    # Requests that met a connection closed by the server and were sent once more.
    resent: int = 0


# All numbers up to the largest are looked for; no job takes this many turns.
TurnNumber = Annotated[int, msgspec.Meta(ge=0, le=100_000)]


class Turn(TurnResult, kw_only=True):
    """One turn of one side.

    Turns of base and head with the same ``quad`` are compared with each other;
    ``place`` is their order in it: first, second and so on. ``start`` counts the pairs
    of fresh processes; if every turn is a fresh process, the start is the quad.
    ``seconds`` is how long the turn took.
    """

    workload: str
    start: TurnNumber
    quad: TurnNumber
    place: TurnNumber
    seconds: float


def turns_by_quad(turns: Iterable[Turn], job: str) -> dict[int, list[Turn]]:
    """The turns of a job by their quad, in the order of measuring."""
    quads: dict[int, list[Turn]] = {}
    for turn in turns:
        if turn.workload == job:
            quads.setdefault(turn.quad, []).append(turn)
    return quads


def typical_values(job: JobRecord, turns: Iterable[Turn]) -> dict[str, float]:
    """The median over the turns of a job of each of its numbers, in the order in which
    the record lists them.
    """
    own = [turn for turn in turns if turn.workload == job.name]
    typical: dict[str, float] = {}
    for number in job.numbers:
        values = [
            turn.values[number.metric] for turn in own if number.metric in turn.values
        ]
        if values:
            typical[number.metric] = median(values)
    return typical


def sample_quantiles(
    job: str, turns: Iterable[Turn]
) -> dict[str, tuple[int, list[float]]]:
    """Of every metric that has several samples a turn: how many from all turns of a
    job, and their QUANTILES in seconds.
    """
    samples: dict[str, list[np.ndarray]] = {}
    for turn in turns:
        if turn.workload == job:
            for entry in turn.samples:
                if entry.metric not in _OF_A_TURN:
                    samples.setdefault(entry.metric, []).append(unpack(entry.samples))
    quantiles: dict[str, tuple[int, list[float]]] = {}
    for metric, arrays in samples.items():
        pooled = np.concatenate(arrays)
        if pooled.size:
            quantiles[metric] = (
                int(pooled.size),
                (np.quantile(pooled, QUANTILES) / 1e9).tolist(),
            )
    return quantiles


# --- a profile of the Python code of a job: the stacks of its processes, sampled in
# turns that serve no other purpose

ProfileUnit = Literal["token", "request", "step", "run"]
# Years, and the largest integer that JSON numbers represent exactly.
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Number = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class CalledFunction(FrozenStruct, kw_only=True):
    """A function of the project that a call runs: lines ``first`` to ``last`` of its
    file.

    ``callers`` are the lines of the project from which it is called (``model.py:88``),
    the most frequent first; frames in between, such as the framework's own code, are
    left out.
    """

    name: str
    file: str
    first: int
    last: int
    callers: list[str] = []


class ProfiledLine(FrozenStruct, kw_only=True):
    """A line of the project, with the time of all its calls into other code, in seconds
    per unit.

    ``cpu`` is CPU time, ``waited`` how long the line itself slept or waited, and
    ``samples`` how many samples of either there are. ``code`` is the text of the line,
    by which the lines of two sides are matched. ``function`` is the qualified name.
    """

    function: str
    line: str
    cpu: Amount
    waited: Amount
    samples: Number
    code: str = ""


class ProfiledOperator(FrozenStruct, kw_only=True):
    """An operator that a function of the project calls: how often in a unit, and the
    seconds of all calls in one.

    Seconds are the device's work, if any was recorded (``on_device``), else of the
    host, without calls that lie far above the others; ``spread`` is the standard
    deviation of a single call of these. ``line`` is the beginning of the function;
    ``function`` and ``line`` are empty for an operator that no function of the project
    calls.
    """

    name: str
    function: str
    line: str
    calls: Amount
    seconds: Amount
    spread: Amount
    on_device: bool = False


class JobProfile(FrozenStruct, kw_only=True):
    """The profile of one side of a job: evidence for a cause, and never for the
    verdict.

    ``units`` are how many tokens, requests, steps or runs were profiled, and
    ``seconds`` how long one took. ``cpu`` is the CPU time of all Python threads in one.
    ``lines`` are the heaviest; ``functions`` are those that were seen, with their
    callers. ``operators`` cover ``operator_units`` units, which torch.profiler or one
    of the program's own recorded afterwards.
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
