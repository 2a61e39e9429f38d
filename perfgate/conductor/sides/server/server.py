"""A server as a side: perfgate starts it, waits until it answers, and in each turn
sends it a load.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

import msgspec

from perfgate.catalogue.names import E2E
from perfgate.conductor.load.generator import run_load
from perfgate.conductor.load.http import KEEP_ALIVE, HttpTarget
from perfgate.conductor.load.openai import OpenAITarget
from perfgate.conductor.load.plan import LoadPlan, plan_load
from perfgate.conductor.load.record import Load, Target
from perfgate.conductor.load.timeline import write_timeline
from perfgate.conductor.machine.cpus import granted_cpus
from perfgate.conductor.sides.program import ProgramEnd, SideError, free_port
from perfgate.conductor.sides.ranks.hccl import next_group, port_settings
from perfgate.conductor.sides.server.endpoints import ServerEndpoints
from perfgate.conductor.sides.server.programs import RequestClient, check_answers
from perfgate.conductor.sides.server.server_numbers import (
    misses,
    numbers_of,
    turn_of_load,
)
from perfgate.conductor.sides.side import ProgramSide, SidePlace, SidePlan
from perfgate.conductor.sides.stacks.stacks import SideStacks
from perfgate.document.job import JobNumber, TurnResult
from perfgate.job_settings import JobReference
from perfgate.load_settings import LoadSettings
from perfgate.system.interrupts import safe_point

# Bursts of the warm-up: it ends once two consecutive bursts agree to this share, or
# after this many.
SETTLED = 0.1
MOST_WARM_UPS = 12
_POLL_SECONDS = 0.02
# Connections break before the server's end is known, so its processes and their
# children are waited for.
_DEATH_SECONDS = 2.0
_WARM_UP_SEED, _PROBE_SEED, _TEXTS_SEED = 1_000_000, 2_000_000, 3_000_000
# Both sides are loaded with this share of the highest rate that holds: beyond it a
# queue grows for as long as the turn takes.
RATE_SHARE = 0.9
# A load independent of the server's capacity: a fixed number of concurrent requests.
_WARM_UP_CONCURRENCY = 4


class ServerSide(ProgramSide):
    """One side of a server.

    Its turns send the load of their number, the same to both sides.
    """

    plan = SidePlan(turns=4, fewest=4, most=32)

    def __init__(self, reference: JobReference, place: SidePlace) -> None:
        super().__init__(reference, place)
        self._rate = reference.rate
        self._load_settings = _load_of(reference)
        self._probes = 0
        self._group = next_group()
        # While it starts it may use all CPUs. Once turns begin, this process is bound
        # to the load generator's CPUs.
        self._starts_on = granted_cpus()
        self._client: RequestClient | None = None
        self._is_checked = self._is_probed = False
        self._make_target: Callable[[], Target] | None = None
        # Answers that arrive in one piece have no time per token, so one turn can lack
        # a metric that others have.
        self._metrics: dict[str, None] = {}

    @property
    def numbers(self) -> tuple[JobNumber, ...]:
        return numbers_of(
            self._metrics,
            is_closed_loop=self._load_settings.concurrency is not None,
            is_highest_rate=self._rate is not None,
        )

    # --- start and end

    def start(self) -> None:
        port = free_port()
        self._endpoints = ServerEndpoints(f"http://127.0.0.1:{port}")
        environment = {"PORT": str(port)}
        if not self._place.alone:
            environment |= port_settings(self._place.environment, self._group)
        self._program = self._place.run(
            self._settings.serve, environment, cpus=self._starts_on
        )
        if self._settings.client:
            self._client = RequestClient(self._settings.client, self._place)
        self._is_checked = self._is_probed = False

    def warm_up(self) -> None:
        self._wait_ready()
        self._running.bind(self._place.cpus)
        self._make_target = self._target_at(self._endpoints.url)
        self._settle()
        self._sleep()

    def stop(self) -> None:
        if self._client is not None:
            self._client.stop()
            self._client = None
        super().stop()

    def _wait_ready(self) -> None:
        """Wait until ``ready`` answers with success.

        Raises SideError if the server ends, or takes too long.
        """
        settings = self._settings
        deadline = time.monotonic() + settings.ready_timeout
        while True:
            safe_point()
            if end := self._running.ended():
                raise self._has_ended(end)
            obstacle = self._endpoints.obstacle(settings.ready)
            if not obstacle:
                return
            if time.monotonic() > deadline:
                raise self._failed(
                    "timeout",
                    "job.not-ready",
                    path=settings.ready,
                    seconds=settings.ready_timeout,
                    seen=obstacle,
                )
            time.sleep(_POLL_SECONDS)

    def _has_ended(self, end: ProgramEnd) -> SideError:
        line = self._settings.serve
        if end.signal:
            return self._failed(
                "exit", "job.server-killed", line=line, signal=end.signal
            )
        return self._failed("exit", "job.server-ended", line=line, code=end.code)

    def _target_at(self, url: str) -> Callable[[], Target]:
        """A factory for the target of a load, by the fields left out of requests at
        that time.

        Raises SideError if no model is named and the server lists none.
        """
        settings = self._settings
        if self._client is not None:
            client = self._client.target(
                url, ready_timeout=settings.ready_timeout, timeout=settings.timeout
            )
            return lambda: client
        if settings.api == "http":
            plain = HttpTarget(
                url, timeout=settings.timeout, path=settings.path, body=settings.body
            )
            return lambda: replace(plain, without=frozenset(self._place.without))
        model = settings.model
        try:
            model = model or self._endpoints.first_model()
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise self._failed("protocol", "job.no-model", why=str(error)) from error
        streamed = OpenAITarget(
            url,
            model,
            api=settings.api,
            timeout=settings.timeout,
            ignore_eos=settings.ignore_eos,
            extra=settings.extra,
        )
        return lambda: replace(streamed, without=frozenset(self._place.without))

    def _settle(self) -> None:
        """Send loads until two consecutive loads take about as long: a server is ready
        long before it is fast.
        """
        before = math.inf
        for number in range(MOST_WARM_UPS):
            plan = self._plan(_WARM_UP_SEED + number, self._closed)
            while self._learns(load := self._send(plan)):
                pass
            seconds = self._checked(load).seconds
            if number and abs(math.log(seconds / before)) < SETTLED:
                return
            before = seconds

    def _learns(self, load: Load) -> bool:
        """Whether a load showed something that the server does not take; requests to
        both sides go without it from now on.
        """
        without = self._place.without
        count = len(without)
        for exchange in load.exchanges:
            if exchange.rejected:
                without.add(exchange.rejected)
            if exchange.resent:
                without.add(KEEP_ALIVE)
        return len(without) > count

    # --- a turn

    def turn(self, number: int) -> TurnResult:
        program = self._running
        out_of_turn = program.begin_turn()
        self._wake_up()
        texts = self._texts()
        plan = self._plan(number, self._load_settings)
        counters_before = self._counters()
        meter = program.cpu_meter()
        load = self._checked(self._send(plan))
        cpu = meter.read()
        result = self._result(plan, load, cpu.used)
        counters = dict(result.counters)
        for name, count in self._counters().items():
            counters[name] = count - counters_before.get(name, 0)
        self._sleep()
        program.end_turn()
        write_timeline(self._place.log.with_suffix(".requests.json"), load.exchanges)
        self.is_blurred = _came_at_once(load)
        without = sorted(self._place.without)
        return msgspec.structs.replace(
            result,
            out_of_turn=out_of_turn,
            texts=texts,
            counters=counters,
            cpu=cpu,
            without=without,
        )

    def profile(self, number: int) -> SideStacks | None:
        if self._program is None:
            return None
        self._wake_up()
        streams, numbers = self._settings.streams_tokens, itertools.count(number)

        def work() -> int:
            load = self._load(next(numbers), self._load_settings)
            tokens = sum(exchange.output_tokens or 0 for exchange in load.exchanges)
            return tokens if streams and tokens else len(load.exchanges)

        try:
            return self._sample(
                work,
                "token" if streams else "request",
                begin=self._endpoints.start_profiler,
                end=self._endpoints.stop_profiler,
            )
        finally:
            self._sleep()

    def _counters(self) -> dict[str, int]:
        """The server's own counters so far; empty if it is not asked."""
        settings = self._settings
        if not settings.metrics or not settings.streams_tokens:
            return {}
        return self._endpoints.counters(settings.metrics)

    def _sleep(self) -> None:
        if self._settings.fits == "sleep":
            self._post(self._settings.sleep)

    def _wake_up(self) -> None:
        """Wake the server and let it answer once, so that rebuilding dropped state is
        not part of the turn.
        """
        if self._settings.fits == "sleep":
            self._post(self._settings.wake_up)
            self._load(_WARM_UP_SEED, self._closed)

    def _post(self, path: str) -> None:
        """Ask the server to sleep or to wake up. Raises SideError if it refuses."""
        try:
            self._endpoints.post(path, self._settings.timeout)
        except OSError as error:
            raise self._failed(
                "protocol", "job.no-sleep", path=path, why=str(error)
            ) from error

    @property
    def _closed(self) -> LoadSettings:
        """The requests of a turn in a closed loop, for loads with a meaningful
        duration.
        """
        if self._load_settings.concurrency is not None:
            return self._load_settings
        return closed_loop(self._load_settings)

    def closed_rate(self) -> float:
        """Requests a second of a closed loop, for a search to begin with."""
        load = self._load(_WARM_UP_SEED, self._closed)
        return len(load.exchanges) / load.seconds

    def misses(self, rate: float, requests: int) -> int:
        """The number of requests at a rate that miss the SLA.

        An equal number before them, while a queue grows, is ignored.
        """
        sla = self._settings.sla
        assert sla is not None, "a rate is searched where there is an SLA"
        self._probes += 1
        settings = msgspec.structs.replace(
            self._load_settings, rate=rate, concurrency=None, requests=2 * requests
        )
        load = self._send(self._plan(_PROBE_SEED + self._probes, settings))
        return misses(
            load.exchanges[requests:],
            first_token=sla.first_token,
            per_token=sla.per_token,
        )

    def _plan(self, number: int, settings: LoadSettings) -> LoadPlan:
        return plan_load(settings, seed=number, root=self._place.harness)

    def _send(self, plan: LoadPlan) -> Load:
        """Send a load. Raises SideError if the server ended meanwhile."""
        assert self._make_target is not None
        load = run_load(plan, self._make_target())
        if load.errors and (end := self._running.ended(_DEATH_SECONDS)):
            raise self._has_ended(end)
        return load

    def _load(self, number: int, settings: LoadSettings) -> Load:
        """Send a load.

        Raises SideError if a request fails, with the server's answer.
        """
        return self._checked(self._send(self._plan(number, settings)))

    def _checked(self, load: Load) -> Load:
        if errors := load.errors:
            count = len(load.exchanges)
            raise self._failed(
                "protocol",
                "job.requests-failed",
                failed=len(errors),
                count=count,
                error=errors[0],
            )
        return load

    def _result(self, plan: LoadPlan, load: Load, cpu_seconds: float) -> TurnResult:
        """The results of a load. Raises SideError if there are none."""
        result = turn_of_load(load, cpu_seconds, self._settings)
        if self._settings.streams_tokens and E2E not in result.values:
            raise self._failed("protocol", "job.no-text", count=len(load.exchanges))
        if not result.values:
            raise self._failed("protocol", "job.nothing-measured")
        self._metrics.update(dict.fromkeys(result.values))
        return msgspec.structs.replace(
            result, requests=plan.sha256, output=self._output(plan, load)
        )

    def _texts(self) -> list[str]:
        """Hashes of the answers to fixed requests, sent once after every start; empty
        if no share is compared.
        """
        if self._is_probed:
            return []
        self._is_probed = True
        texts = []
        for number in range(self._settings.probe_loads):
            load = self._load(_TEXTS_SEED + number, self._load_settings)
            for exchange in load.exchanges:
                # Long enough that no two different texts of a gate share a hash.
                texts.append(sha256(exchange.text.encode()).hexdigest()[:16])
        return texts

    def _output(self, plan: LoadPlan, load: Load) -> str:
        """The hash of the answers that must be equal on both sides; empty if none must."""
        settings = self._settings
        if settings.check:
            if self._is_checked:
                return ""
            self._is_checked = True
            verdict = check_answers(
                settings.check,
                plan.requests,
                load.exchanges,
                self._place,
                timeout=settings.timeout,
            )
            return sha256(verdict.encode()).hexdigest()
        if settings.same_output is not True:
            return ""
        answers = "\0".join(exchange.text for exchange in load.exchanges)
        return sha256(answers.encode()).hexdigest()


def _came_at_once(load: Load) -> bool:
    """Whether every answer of several tokens was read in one go, as by a generator that
    had no CPU meanwhile.
    """
    longer = []
    for exchange in load.exchanges:
        if exchange.first is not None and (exchange.output_tokens or 0) > 1:
            longer.append(exchange.last == exchange.first)
    return bool(longer) and all(longer)


def _load_of(reference: JobReference) -> LoadSettings:
    """The load of a turn.

    ``highest`` is nine tenths of the rate that was searched, and before that a closed
    loop.
    """
    load = reference.settings.load or LoadSettings(concurrency=_WARM_UP_CONCURRENCY)
    if load.rate != "highest":
        return load
    if reference.rate is None:
        return closed_loop(load)
    return msgspec.structs.replace(load, rate=RATE_SHARE * reference.rate)


def closed_loop(load: LoadSettings) -> LoadSettings:
    return msgspec.structs.replace(
        load, rate=None, burstiness=1.0, concurrency=_WARM_UP_CONCURRENCY
    )
