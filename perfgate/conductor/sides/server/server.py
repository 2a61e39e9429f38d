"""A server as a side: perfgate starts it, waits until it answers, and in each turn sends it a load of its own making."""

from __future__ import annotations

import itertools
import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256

import msgspec

from perfgate.catalogue.names import E2E
from perfgate.conductor.load.connection import KEEP_ALIVE
from perfgate.conductor.load.counters import read_counters
from perfgate.conductor.load.generator import run_load
from perfgate.conductor.load.http import HttpTarget
from perfgate.conductor.load.measures import misses
from perfgate.conductor.load.openai import OpenAITarget
from perfgate.conductor.load.plan import LoadPlan, plan_load
from perfgate.conductor.load.record import Load
from perfgate.conductor.load.target import Target
from perfgate.conductor.load.timeline import write_timeline
from perfgate.conductor.machine.cpus import granted_cpus
from perfgate.conductor.sides.program import ProgramEnd, SideError, SideProgram, free_port
from perfgate.conductor.sides.ranks.hccl import next_group, port_settings
from perfgate.conductor.sides.server.answers import check_answers
from perfgate.conductor.sides.server.client import RequestClient
from perfgate.conductor.sides.server.server_numbers import numbers_of, turn_of_load
from perfgate.conductor.sides.server.server_profiler import ServerProfiler
from perfgate.conductor.sides.side import SidePlace, SidePlan
from perfgate.conductor.sides.stacks.recorded_operators import record_operators
from perfgate.conductor.sides.stacks.stacks import SideStacks, sample_stacks
from perfgate.document.job import JobNumber, TurnResult
from perfgate.document.message import Message, MessageValue
from perfgate.job_settings import JobReference
from perfgate.load_settings import LoadSettings
from perfgate.system.interrupts import safe_point

# Bursts of the warm-up: two that follow each other agree so far, or there have been so many.
SETTLED = 0.1
MOST_WARM_UPS = 12
_POLL_SECONDS = 0.02
_PROBE_SECONDS = 5.0
# Connections break before the server's end is known, so its processes and their children are waited for.
_DEATH_SECONDS = 2.0
_WARM_UP_SEED, _PROBE_SEED, _TEXTS_SEED = 1_000_000, 2_000_000, 3_000_000
# Both sides are loaded with so much of the highest rate that holds: beyond it a queue grows for as long as the turn takes.
RATE_SHARE = 0.9
# A load independent of the server's capacity: a fixed number of concurrent requests.
_WARM_UP_CONCURRENCY = 4


class ServerSide:
    """One side of a server. Its turns send the load of their number, the same to both sides."""

    plan = SidePlan(turns=4, fewest=4, most=32)

    def __init__(self, reference: JobReference, place: SidePlace) -> None:
        self._settings = reference.settings
        self._rate = reference.rate
        self._load_settings = _load_of(reference)
        self._probes = 0
        self._group = next_group()
        self._place = place
        # While it starts it may use all CPUs. Once turns begin, this process is bound to those of the load generator.
        self._starts_on = granted_cpus()
        self._program: SideProgram | None = None
        self._client: RequestClient | None = None
        self._is_checked = self._is_probed = False
        self._url = ""
        self._make_target: Callable[[], Target] | None = None
        self.numbers: tuple[JobNumber, ...] = ()
        self.is_blurred = False

    # --- start and end

    def start(self) -> None:
        port = free_port()
        self._url = f"http://127.0.0.1:{port}"
        self._program = SideProgram(
            self._settings.serve,
            folder=self._place.root,
            environment={
                **self._place.environment,
                **({} if self._place.alone else port_settings(self._place.environment, self._group)),
                "PORT": str(port),
            },
            log=self._place.log,
            cpus=self._starts_on,
            room=self._place.room,
        )
        if self._settings.client:
            self._client = RequestClient(self._settings.client, self._place)
        self._is_checked = self._is_probed = False

    def warm_up(self) -> None:
        program = self._program
        assert program is not None, "a side is started before it is warmed up"
        self._wait_ready(program, self._url)
        program.bind(self._place.cpus)
        self._make_target = self._target_at(self._url)
        self._settle(program)
        self._sleep(program)

    def count(self) -> Mapping[str, int]:
        return {}

    def stop(self) -> None:
        if self._client is not None:
            self._client.stop()
            self._client = None
        if self._program is not None:
            self._program.stop()
            self._program = None

    def _wait_ready(self, program: SideProgram, url: str) -> None:
        """Wait until ``ready`` answers with success. Raises SideError if the server ends, or takes too long."""
        settings = self._settings
        deadline = time.monotonic() + settings.ready_timeout
        seen = ""
        while True:
            safe_point()
            if end := program.ended():
                raise program.failed("exit", _how_it_ended(settings.serve, end))
            try:
                with urllib.request.urlopen(url + settings.ready, timeout=_PROBE_SECONDS):  # noqa: S310 - our own http address
                    return
            except urllib.error.HTTPError as error:
                seen = f"HTTP {error.code}"
            except OSError as error:
                seen = str(getattr(error, "reason", error))
            if time.monotonic() > deadline:
                values: dict[str, MessageValue] = {
                    "path": settings.ready,
                    "seconds": settings.ready_timeout,
                    "seen": seen,
                }
                raise program.failed("timeout", Message("job.not-ready", values))
            time.sleep(_POLL_SECONDS)

    def _target_at(self, url: str) -> Callable[[], Target]:
        """A factory for the target of a load, by the fields left out of requests at that time."""
        settings = self._settings
        if self._client is not None:
            client = self._client.target(url, ready_timeout=settings.ready_timeout, timeout=settings.timeout)
            return lambda: client
        if settings.api == "http":
            method = "POST" if settings.body else "GET"
            plain = HttpTarget(url=url, method=method, path=settings.path, body=settings.body, timeout=settings.timeout)
            return lambda: replace(plain, without=frozenset(self._place.without))
        streamed = OpenAITarget(
            url=url,
            model=settings.model or self._first_model(url),
            api=settings.api,
            timeout=settings.timeout,
            ignore_eos=settings.ignore_eos,
            extra=settings.extra,
        )
        return lambda: replace(streamed, without=frozenset(self._place.without))

    def _first_model(self, url: str) -> str:
        """The model that the server lists first. Raises SideError if it lists none."""
        try:
            with urllib.request.urlopen(f"{url}/v1/models", timeout=_PROBE_SECONDS) as answer:  # noqa: S310
                return str(msgspec.json.decode(answer.read(1 << 20))["data"][0]["id"])
        except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
            assert self._program is not None
            raise self._program.failed("protocol", Message("job.no-model", {"why": str(error)})) from error

    def _settle(self, program: SideProgram) -> None:
        """Send loads until two that follow each other take alike long: a server is ready long before it is fast."""
        before = math.inf
        for number in range(MOST_WARM_UPS):
            plan = self._plan(_WARM_UP_SEED + number, self._closed)
            while self._learns(load := self._send(program, plan)):
                pass
            seconds = self._checked(program, load).seconds
            if number and abs(math.log(seconds / before)) < SETTLED:
                return
            before = seconds

    def _learns(self, load: Load) -> bool:
        """Whether a load showed something that the server does not take; requests to both sides go without it from now on."""
        found = {exchange.rejected for exchange in load.exchanges if exchange.rejected}
        if any(exchange.resent for exchange in load.exchanges):
            found.add(KEEP_ALIVE)
        is_new = not found <= self._place.without
        self._place.without.update(found)
        return is_new

    # --- a turn

    def turn(self, number: int) -> TurnResult:
        program = self._program
        assert program is not None, "a side is started before its turn"
        out_of_turn = program.begin_turn()
        self._wake_up(program)
        texts = self._texts(program)
        plan = self._plan(number, self._load_settings)
        counted_before = self._counters()
        meter = program.cpu_meter()
        load = self._checked(program, self._send(program, plan))
        cpu = meter.read()
        counted = {name: count - counted_before.get(name, 0) for name, count in self._counters().items()}
        result = self._result(program, plan, load, cpu.used)
        counters = {**result.counters, **counted}
        self._sleep(program)
        program.end_turn()
        write_timeline(self._place.log.with_suffix(".requests.json"), load.exchanges)
        # A generator that had no CPU meanwhile reads every answer of several tokens in one go.
        longer = [
            exchange for exchange in load.exchanges if (exchange.output_tokens or 0) > 1 and exchange.first is not None
        ]
        self.is_blurred = bool(longer) and all(exchange.last == exchange.first for exchange in longer)
        without = sorted(self._place.without)
        return msgspec.structs.replace(
            result, out_of_turn=out_of_turn, texts=texts, counters=counters, cpu=cpu, without=without
        )

    def profile(self, number: int) -> SideStacks | None:
        program, folder = self._program, self._place.profile
        if program is None or folder is None:
            return None
        self._wake_up(program)
        streams, sent = self._settings.streams_tokens, itertools.count(number)

        def work() -> int:
            load = self._load(program, next(sent), self._load_settings)
            tokens = sum(exchange.output_tokens or 0 for exchange in load.exchanges)
            return tokens if streams and tokens else len(load.exchanges)

        profiler = ServerProfiler(self._url)
        try:
            sampled = sample_stacks(
                folder, program.processes, work, "token" if streams else "request", program.cpu_meter().read
            )
            with suppress(SideError):
                return record_operators(sampled, program.processes, work, begin=profiler.start, end=profiler.stop)
            return sampled
        finally:
            self._sleep(program)

    def _counters(self) -> dict[str, int]:
        """The server's own counters so far; empty if it is not asked."""
        settings = self._settings
        if not settings.metrics or not settings.streams_tokens:
            return {}
        return read_counters(self._url + settings.metrics, _PROBE_SECONDS)

    def _sleep(self, program: SideProgram) -> None:
        if self._settings.fits == "sleep":
            self._post(program, self._settings.sleep)

    def _wake_up(self, program: SideProgram) -> None:
        """Wake the server and let it answer once, so that rebuilding dropped state is not part of the turn."""
        if self._settings.fits == "sleep":
            self._post(program, self._settings.wake_up)
            self._load(program, _WARM_UP_SEED, self._closed)

    def _post(self, program: SideProgram, path: str) -> None:
        """Ask the server to sleep or to wake up. Raises SideError if it refuses."""
        request = urllib.request.Request(self._url + path, method="POST")  # noqa: S310 - our own http address
        try:
            with urllib.request.urlopen(request, timeout=self._settings.timeout):  # noqa: S310
                return
        except OSError as error:
            raise program.failed("protocol", Message("job.no-sleep", {"path": path, "why": str(error)})) from error

    @property
    def _closed(self) -> LoadSettings:
        """The requests of a turn in a closed loop, for loads with a meaningful duration."""
        return closed_loop(self._load_settings) if self._load_settings.concurrency is None else self._load_settings

    def closed_rate(self) -> float:
        """Requests a second of a closed loop, for a search to begin with."""
        assert self._program is not None
        load = self._load(self._program, _WARM_UP_SEED, self._closed)
        return len(load.exchanges) / load.seconds

    def misses(self, rate: float, requests: int) -> int:
        """How many of so many requests at a rate miss the SLA. As many before them, while a queue grows, do not count."""
        assert self._program is not None
        assert self._settings.sla is not None, "a rate is searched where there is an SLA"
        self._probes += 1
        settings = msgspec.structs.replace(self._load_settings, rate=rate, concurrency=None, requests=2 * requests)
        load = self._send(self._program, self._plan(_PROBE_SEED + self._probes, settings))
        sla = self._settings.sla
        return misses(load.exchanges[requests:], first_token=sla.first_token, per_token=sla.per_token)

    def _plan(self, number: int, settings: LoadSettings) -> LoadPlan:
        return plan_load(settings, seed=number, root=self._place.harness)

    def _send(self, program: SideProgram, plan: LoadPlan) -> Load:
        """Send a load. Raises SideError if the server ended meanwhile."""
        assert self._make_target is not None
        load = run_load(plan, self._make_target())
        if any(exchange.error for exchange in load.exchanges) and (end := program.ended(_DEATH_SECONDS)):
            raise program.failed("exit", _how_it_ended(self._settings.serve, end))
        return load

    def _load(self, program: SideProgram, number: int, settings: LoadSettings) -> Load:
        """Send a load. Raises SideError if a request fails, with the server's answer."""
        return self._checked(program, self._send(program, self._plan(number, settings)))

    def _checked(self, program: SideProgram, load: Load) -> Load:
        failed = [exchange for exchange in load.exchanges if exchange.error]
        if failed:
            values: dict[str, MessageValue] = {
                "failed": len(failed),
                "count": len(load.exchanges),
                "error": failed[0].error,
            }
            raise program.failed("protocol", Message("job.requests-failed", values))
        return load

    def _result(self, program: SideProgram, plan: LoadPlan, load: Load, cpu_seconds: float) -> TurnResult:
        """The results of a load. Raises SideError if there are none."""
        result = turn_of_load(load, cpu_seconds, self._settings)
        if self._settings.streams_tokens and E2E not in result.values:
            raise program.failed("protocol", Message("job.no-text", {"count": len(load.exchanges)}))
        if not result.values:
            raise program.failed("protocol", Message("job.nothing-measured"))
        self.numbers = self.numbers or numbers_of(
            result.values,
            is_closed_loop=self._load_settings.concurrency is not None,
            is_highest_rate=self._rate is not None,
        )
        return msgspec.structs.replace(result, requests=plan.sha256, output=self._output(plan, load))

    def _texts(self, program: SideProgram) -> list[str]:
        """Hashes of the answers to fixed requests, sent once after every start; empty if no share is compared."""
        if self._is_probed:
            return []
        self._is_probed = True
        seeds = range(_TEXTS_SEED, _TEXTS_SEED + self._settings.probe_loads)
        loads = [self._load(program, seed, self._load_settings) for seed in seeds]
        return [hash_of_text(exchange.text) for load in loads for exchange in load.exchanges]

    def _output(self, plan: LoadPlan, load: Load) -> str:
        """The hash of the answers that must be equal on both sides; empty if none must."""
        settings = self._settings
        if settings.check:
            if self._is_checked:
                return ""
            self._is_checked = True
            verdict = check_answers(
                settings.check, plan.requests, load.exchanges, self._place, timeout=settings.timeout
            )
            return sha256(verdict.encode()).hexdigest()
        answers = "\0".join(exchange.text for exchange in load.exchanges)
        return sha256(answers.encode()).hexdigest() if settings.same_output is True else ""


def _how_it_ended(line: str, end: ProgramEnd) -> Message:
    if end.signal:
        return Message("job.server-killed", {"line": line, "signal": end.signal})
    return Message("job.server-ended", {"line": line, "code": end.code})


def _load_of(reference: JobReference) -> LoadSettings:
    """The load of a turn. ``highest`` is nine tenths of the rate that was searched, and before that a closed loop."""
    load = reference.settings.load or LoadSettings(concurrency=_WARM_UP_CONCURRENCY)
    if load.rate != "highest":
        return load
    if reference.rate is None:
        return closed_loop(load)
    return msgspec.structs.replace(load, rate=RATE_SHARE * reference.rate)


def hash_of_text(text: str) -> str:
    """So long that two texts of a gate hardly have the same one."""
    return sha256(text.encode()).hexdigest()[:16]


def closed_loop(load: LoadSettings) -> LoadSettings:
    return msgspec.structs.replace(load, rate=None, burstiness=1.0, concurrency=_WARM_UP_CONCURRENCY)
