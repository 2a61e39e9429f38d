"""The jobs in perfgate.toml: a server, ranks or a command that is gated instead of a
function.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from perfgate.catalogue.names import (
    E2E,
    GOODPUT,
    NUMBER,
    RANKS_CPU,
    RANKS_LOSS,
    RANKS_MEMORY,
    RANKS_STEP,
    REQUEST_CPU,
    SERVING_CPU,
    SERVING_THROUGHPUT,
    TPOT,
    TTFT,
)
from perfgate.document.job import Fits, JobKind
from perfgate.errors import ConfigError
from perfgate.load_settings import LoadSettings, Seconds, Text, doc
from perfgate.locale import Activity

# Units as programs write them: the base unit, and how many of it they are.
UNITS: dict[str, tuple[str, float]] = {
    "1": ("1", 1.0),
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "µs": ("s", 1e-6),
    "ns": ("s", 1e-9),
    "min": ("s", 60.0),
    "B": ("B", 1.0),
    "KiB": ("B", 2.0**10),
    "MiB": ("B", 2.0**20),
    "GiB": ("B", 2.0**30),
    "kB": ("B", 1e3),
    "MB": ("B", 1e6),
    "GB": ("B", 1e9),
    "tokens/s": ("tokens/s", 1.0),
    "tok/s": ("tokens/s", 1.0),
    "items/s": ("items/s", 1.0),
    "B/s": ("B/s", 1.0),
    "GB/s": ("B/s", 1e9),
}
# A lower number of these is never better, whatever the default of `better` is.
RATES = ("tokens/s", "items/s")
MOST_RANKS = 1024
# Both ends of the socket can read a report of this many steps as one line.
MOST_STEPS = 5000
# The fewest answers per start for a meaningful share.
FEWEST_ANSWERS = 32
# Names become parts of metrics and of file names.
NAME = re.compile(r"\w[\w.-]{0,99}")
# The shell's variable with the port of a server.
_PORT = re.compile(r"\$(PORT\b|\{PORT\b)")


class NumberSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """One number of a command: its place, its unit, and the better direction.

    One of the first three is the place.
    """

    json: Annotated[
        str,
        doc(
            "Its path in the JSON that `file` or the last line of the output holds: `a.b[0].c`."
        ),
    ] = ""
    column: Annotated[
        str, doc("Its column in the CSV of `file`: the mean of the rows counts.")
    ] = ""
    pattern: Annotated[
        str,
        doc(
            "A regular expression with one group; the last match in the output or `file` counts."
        ),
    ] = ""
    unit: Annotated[str, doc("Its unit: `s`, `ms`, `B`, `MiB`, `tokens/s`, `1` …")] = (
        "1"
    )
    better: Annotated[Literal["lower", "higher"], doc("Which direction is better.")] = (
        "lower"
    )
    tolerance: Annotated[
        float, Meta(ge=0, description="How much worse than its base it may be.")
    ] = 0.03


class SlaSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """When a request counts as good, and how many must."""

    first_token: Annotated[Seconds, doc("Seconds to its first token at most.")]
    per_token: Annotated[
        Seconds | None, doc("Seconds for each token after it at most.")
    ] = None
    share: Annotated[
        float,
        Meta(
            gt=0.5,
            lt=1,
            description="The share of requests that must be good. A rate at which three times as many miss does not hold.",
        ),
    ] = 0.95


class JobSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A job.

    One of `command`, `serve`, `torchrun` and `workload` is the program to start in the
    checkout of each side.
    """

    command: Annotated[
        str, doc("A program that runs to its end and reports numbers.")
    ] = ""
    serve: Annotated[
        str, doc("A server; the line names `$PORT`, where it listens.")
    ] = ""
    torchrun: Annotated[
        str,
        doc(
            "A script that torchrun starts in every rank; its loop calls `perfgate.turn()`."
        ),
    ] = ""
    workload: Annotated[
        str,
        doc(
            "A workload of a Python file, `perf/workload.py:NAME`, that runs in every one of `ranks`; a call is a step."
        ),
    ] = ""
    timeout: Annotated[
        Seconds,
        doc("Seconds that a run of a command, or a turn of the others, may take."),
    ] = 600.0
    budget: Annotated[
        Seconds,
        doc(
            "Seconds of turns. Once they are spent, no quad begins, unless up to a third more decides."
        ),
    ] = 360.0
    file: Annotated[
        str,
        doc(
            "The file that the command writes its results to, with `*` for parts such as a date. Empty: its output, or "
            "`$PERFGATE_METRICS`."
        ),
    ] = ""
    format: Annotated[str, doc("The format of the file; `auto` finds it out.")] = "auto"
    numbers: Annotated[
        dict[str, NumberSettings], doc("The numbers of a command that no format names.")
    ] = {}
    gates: Annotated[
        list[Text],
        doc(
            "Patterns of the numbers that the verdict rests on; the others inform. Empty: all."
        ),
    ] = []

    ready: Annotated[
        str, doc("The path of the server that answers once it is ready.")
    ] = "/health"
    ready_timeout: Annotated[
        Seconds, doc("Seconds that the server, or the ranks, may take to get ready.")
    ] = 300.0
    api: Annotated[
        Literal["completions", "chat", "http"],
        doc(
            "What it is asked by: OpenAI's completions or chat API, streamed, or plain HTTP requests."
        ),
    ] = "completions"
    model: Annotated[
        str,
        doc("The model's name in requests. Empty: the first that `/v1/models` lists."),
    ] = ""
    client: Annotated[
        str,
        doc(
            "A Python function that sends a request, in place of `api`: `perf/client.py:NAME`. It is called as "
            "`NAME(url, request)` in the checkout of each side, `request` with `prompt`, `output_tokens` and `id`, and returns "
            "the text of the answer."
        ),
    ] = ""
    path: Annotated[str, doc("The path of plain HTTP requests.")] = "/"
    body: Annotated[
        str, doc("The body of plain HTTP requests, with `$prompt` in it. Empty: a GET.")
    ] = ""
    extra: Annotated[
        dict[str, Any], doc("What else every request of the OpenAI API says.")
    ] = {}
    ignore_eos: Annotated[
        bool,
        doc(
            "Whether the server is told to write as many tokens as asked for. One that rejects that is not told."
        ),
    ] = True
    load: Annotated[
        LoadSettings | None,
        doc("The requests of one turn. Unset: 8 requests, 4 at a time."),
    ] = None
    sla: Annotated[
        SlaSettings | None, doc("What a request must hold to count as good.")
    ] = None
    same_output: Annotated[
        bool | Literal["share"],
        doc(
            "Whether base and head must write the same tokens, or compute the same losses. `share`: as many of a server's "
            "answers must be the same text as of base against itself."
        ),
    ] = True

    check: Annotated[
        str,
        doc(
            "A program that looks at what a server answered in the first turn of each start. `$PERFGATE_ANSWERS` names a file "
            'with a line `{"id": …, "prompt": …, "answer": …}` for each request. The last line that it prints must be the same '
            "for base and head, in place of the tokens."
        ),
    ] = ""

    metrics: Annotated[
        str,
        doc(
            "The path of the server's own counters, in Prometheus text. Empty: it is not asked."
        ),
    ] = "/metrics"
    fits: Annotated[
        Fits | Literal["auto"],
        doc(
            "How base and head share the devices. `resident`: both at once. `sleep`: a server sleeps while it has no turn. "
            "`swap`: each has one of the `halves`, then they change. `alternate`: new processes for every turn. "
            "`auto`: `resident`, and `alternate` where a side starts alone but not while the other runs."
        ),
    ] = "auto"
    halves: Annotated[
        list[Text],
        doc(
            'For `swap`: the devices of both halves, `["0,1", "2,3"]`, as ASCEND_RT_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES '
            "names them; of a CPU the CPUs."
        ),
    ] = []
    sleep: Annotated[str, doc("The path that lets the server sleep, by POST.")] = (
        "/sleep?level=1"
    )
    wake_up: Annotated[str, doc("The path that wakes it up, by POST.")] = "/wake_up"

    ranks: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_RANKS,
            description="How many ranks torchrun starts on this machine.",
        ),
    ] = 0
    steps: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST_STEPS,
            description="Steps of one turn: calls of `perfgate.turn()`.",
        ),
    ] = 4
    warm_up: Annotated[
        int,
        Meta(
            ge=1,
            le=MOST_STEPS,
            description="Steps of each start before its first turn. Both sides do as many, so "
            "that their losses can be compared.",
        ),
    ] = 12
    loss_tolerance: Annotated[
        float,
        Meta(
            ge=0,
            lt=1,
            description="How far the mean losses of two turns may be apart, as a share. 0: "
            "every loss must be the same number.",
        ),
    ] = 0.0

    @property
    def kind(self) -> JobKind:
        if self.command:
            return "command"
        return "server" if self.serve else "ranks"

    @property
    def streams_tokens(self) -> bool:
        """Whether a server is used through the OpenAI API, which has the times and
        numbers of its tokens.
        """
        return self.api != "http" and not self.client

    @property
    def searches_rate(self) -> bool:
        """Whether the server is loaded at the highest rate that the base sustains."""
        return self.load is not None and self.load.rate == "highest"

    @property
    def compares_share(self) -> bool:
        return self.same_output == "share" and not self.check

    @property
    def probe_loads(self) -> int:
        """How many loads of a turn are sent before the first turn of a start, for their
        answers to be compared.
        """
        requests = (self.load or LoadSettings(concurrency=1)).requests
        if self.compares_share:
            return math.ceil(FEWEST_ANSWERS / requests)
        return 0

    @property
    def line(self) -> str:
        """The program as it is written."""
        return self.command or self.serve or self.script

    @property
    def script(self) -> str:
        """The script that torchrun starts in every rank."""
        return self.torchrun or (
            self.workload and f"-m perfgate.measuring.rank_workload {self.workload}"
        )


_SERVER = (
    "ready",
    "ready_timeout",
    "api",
    "model",
    "client",
    "path",
    "body",
    "extra",
    "ignore_eos",
    "load",
    "sla",
    "same_output",
    "check",
    "metrics",
    "fits",
    "halves",
    "sleep",
    "wake_up",
)
# Settings that decide how long a job is measured, or how it is judged, but not its
# work.
_NOT_THE_WORK = {"budget", "timeout", "ready_timeout", "gates"}
# The settings that only one kind has.
_OWN: dict[JobKind, tuple[str, ...]] = {
    "command": ("file", "format", "numbers", "gates"),
    "server": _SERVER,
    "ranks": (
        "ready_timeout",
        "ranks",
        "steps",
        "warm_up",
        "same_output",
        "loss_tolerance",
        "fits",
        "halves",
    ),
}
_A: dict[JobKind, str] = {
    "command": "a command",
    "server": "a server",
    "ranks": "a torchrun job",
}


@dataclass(frozen=True)
class JobReference:
    """A job by its name, with all of its settings in perfgate.toml.

    ``rate`` is the highest rate that base was found to sustain, for loads made by it.
    """

    name: str
    settings: JobSettings
    rate: float | None = None

    @property
    def kind(self) -> JobKind:
        return self.settings.kind

    @property
    def written(self) -> dict[str, str]:
        """Every setting as text: a difference between base and head means different
        work.
        """
        fields = msgspec.to_builtins(self.settings)
        return {
            name: msgspec.json.encode(value, order="sorted").decode()
            for name, value in fields.items()
            if value and name not in _NOT_THE_WORK
        }

    @classmethod
    def from_written(
        cls, name: str, written: Mapping[str, str], *, judged_by: JobSettings
    ) -> JobReference | None:
        """The job of the ``written`` settings; None if they do not describe one.

        The settings for measuring time and judging come from ``judged_by``.
        """
        # An omitted setting is empty, even if it has a default.
        defaults = {
            field.name: field.default for field in msgspec.structs.fields(JobSettings)
        }
        values: dict[str, Any] = {
            key: "" for key, default in defaults.items() if isinstance(default, str)
        }
        values |= {
            key: False for key, default in defaults.items() if isinstance(default, bool)
        }
        try:
            values |= {key: msgspec.json.decode(text) for key, text in written.items()}
            values |= {key: getattr(judged_by, key) for key in _NOT_THE_WORK}
            settings = msgspec.convert(values, JobSettings)
            check_job(name, settings)
        except (msgspec.MsgspecError, ConfigError):
            return None
        return cls(name, settings)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(
            msgspec.json.encode(self.written, order="sorted")
        ).hexdigest()

    def must_gate(self, *, on_device: bool) -> tuple[str, ...]:
        """The numbers that decide the verdict, as far as perfgate.toml has them: a
        known format names its numbers itself.

        Ranks ``on_device`` poll it while they wait for it and for each other. So their
        CPU time is no cost of the host, and depends on its load; their memory is the
        allocator's and reproducible.
        """
        settings = self.settings
        if settings.script:
            return RANKS_STEP, RANKS_MEMORY if on_device else RANKS_CPU
        if settings.serve:
            if settings.searches_rate:
                return GOODPUT, SERVING_CPU
            if not settings.streams_tokens:
                return E2E, REQUEST_CPU
            # In a closed loop the server, and not the generator, sets the pace.
            is_closed_loop = (
                settings.load is None or settings.load.concurrency is not None
            )
            return (
                TTFT,
                TPOT,
                SERVING_CPU,
                *((SERVING_THROUGHPUT,) if is_closed_loop else ()),
            )
        names = settings.numbers or [
            name for name in settings.gates if NAME.fullmatch(name)
        ]
        return tuple(
            f"{NUMBER}{name}" for name in names if is_gating(name, settings.gates)
        )

    @property
    def tolerances(self) -> dict[str, float]:
        """The tolerances of its numbers, by the keys of ``[gate.tolerance]``."""
        tolerances = {
            f"{NUMBER}{name}@{self.name}": number.tolerance
            for name, number in self.settings.numbers.items()
        }
        if self.settings.loss_tolerance:
            tolerances[f"{RANKS_LOSS}@{self.name}"] = self.settings.loss_tolerance
        return tolerances


def is_gating(name: str, gates: list[str]) -> bool:
    """Whether a number of a command decides the verdict: without a pattern, all do."""
    return not gates or any(fnmatch.fnmatchcase(name, pattern) for pattern in gates)


def check_job(name: str, settings: JobSettings) -> None:
    """Raise ConfigError for a mistake in a job's settings, with its correction."""
    lines = [
        key
        for key in ("command", "serve", "torchrun", "workload")
        if getattr(settings, key)
    ]
    if len(lines) != 1:
        listed = " and ".join(f"`{line}`" for line in lines) or Activity("none")
        raise ConfigError(
            "[workloads.{name}] needs one of `command`, `serve`, `torchrun` and `workload`, found {found}",
            name=name,
            found=listed,
        )
    defaults = {
        field.name: field.default for field in msgspec.structs.fields(JobSettings)
    }
    for kind, keys in _OWN.items():
        for key in keys:
            if key not in _OWN[settings.kind] and getattr(settings, key) not in (
                defaults[key],
                [],
                {},
            ):
                raise ConfigError(
                    "[workloads.{name}] {key} is a setting of {kind}, and this is {own_kind}; remove it",
                    name=name,
                    key=key,
                    kind=_A[kind],
                    own_kind=_A[settings.kind],
                )
    place = f"[workloads.{name}]"
    _request_mistakes(place, settings)
    if settings.same_output == "share" and not settings.serve:
        raise ConfigError(
            '{place} same_output = "share" is for the answers of a server; write true, or loss_tolerance for losses',
            place=place,
        )
    if settings.same_output == "share" and settings.check:
        raise ConfigError(
            "{place} check and same_output both define which answers are accepted; write one of them",
            place=place,
        )
    _fit_mistakes(place, settings)
    if settings.script and not settings.ranks:
        key = "torchrun" if settings.torchrun else "workload"
        raise ConfigError(
            "[workloads.{name}] {key} needs the number of ranks; write e.g. ranks = 2",
            name=name,
            key=key,
        )
    for number, entry in settings.numbers.items():
        _number_mistakes(
            f"[workloads.{name}.numbers] {number}", number, entry, settings
        )


def _request_mistakes(place: str, settings: JobSettings) -> None:
    if settings.serve and not _PORT.search(settings.serve):
        raise ConfigError(
            "{place} serve = {serve!r} does not name $PORT, where perfgate looks for the server; write e.g. serve = "
            '"python serve.py --port $PORT", or serve = "PORT=$PORT python serve.py" if the program reads the '
            "variable",
            place=place,
            serve=settings.serve,
        )
    if settings.searches_rate and (settings.sla is None or not settings.streams_tokens):
        raise ConfigError(
            '{place} rate = "highest" is the highest rate at which base meets an SLA; write e.g. sla = '
            "{{ first_token = 0.5, per_token = 0.1 }}, of the OpenAI API",
            place=place,
        )
    if settings.client and (
        ":" not in settings.client or settings.api != "completions"
    ):
        raise ConfigError(
            '{place} client = {client!r} is a function in place of `api`; write client = "perf/client.py:NAME" and '
            "no `api`",
            place=place,
            client=settings.client,
        )


def _fit_mistakes(place: str, settings: JobSettings) -> None:
    if settings.fits == "sleep" and not settings.serve:
        raise ConfigError(
            '{place} fits = "sleep" is for servers; write fits = "swap" or "alternate"',
            place=place,
        )
    if (settings.fits == "swap") != (len(settings.halves) == 2) or len(
        settings.halves
    ) > 2:
        raise ConfigError(
            '{place} fits = "swap" and two halves of the devices belong together; write fits = "swap" and halves = '
            '["0,1", "2,3"]',
            place=place,
        )


def _number_mistakes(
    place: str, name: str, number: NumberSettings, settings: JobSettings
) -> None:
    if not NAME.fullmatch(name):
        raise ConfigError(
            "{place}: a name has letters, digits, '_', '-' and '.', a letter first",
            place=place,
        )
    places = [key for key in ("json", "column", "pattern") if getattr(number, key)]
    if len(places) != 1:
        raise ConfigError(
            "{place} needs one of `json`, `column` and `pattern`, found {places}",
            place=place,
            places=" and ".join(places) or Activity("none"),
        )
    if number.unit not in UNITS:
        raise ConfigError(
            "{place} unit {unit!r} is not known; the units are {units}",
            place=place,
            unit=number.unit,
            units=", ".join(UNITS),
        )
    if UNITS[number.unit][0] in RATES and number.better != "higher":
        raise ConfigError(
            '{place} is a rate in {unit}, of which a higher one is better; write better = "higher"',
            place=place,
            unit=number.unit,
        )
    if number.column and not settings.file:
        raise ConfigError(
            '{place} is a column, and no `file` is named; write file = "results.csv"',
            place=place,
        )
    if number.pattern:
        try:
            groups = re.compile(number.pattern).groups
        except re.error as error:
            raise ConfigError(
                "{place} pattern is not a regular expression: {error}",
                place=place,
                error=error,
            ) from error
        if groups != 1:
            raise ConfigError(
                "{place} pattern needs one group around the number, as in 'tokens/s: ([0-9.]+)', found {groups}",
                place=place,
                groups=groups,
            )
