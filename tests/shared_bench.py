"""One bench for the tests of many files: a fork server costs seconds, for the imports of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import ServerKey
from perfgate.conductor.workers.cleanup import kill_leftovers, scratch_folder
from perfgate.config import Config, MeasureSettings, StoreSettings
from perfgate.system.processes import adopt_orphans, children


@dataclass(frozen=True)
class SharedBench:
    """A bench whose settings each file replaces by its own, and what it said so far."""

    bench: Bench
    said: list[str]

    @contextmanager
    def configured(self, config: Config) -> Iterator[Bench]:
        """Yield the bench with these settings, which must not be such that they need another fork server."""
        before, self.bench.config = self.bench.config, config
        assert _of_server(config) == _of_server(before)
        self.said.clear()
        try:
            yield self.bench
        finally:
            self.bench.config = before
            # A test that killed the fork server leaves none to the next.
            if not all(server.running for server in self.bench.servers.running.values()):
                self.bench.servers.close()
            self.bench.servers.lost = None


def _of_server(config: Config) -> tuple[object, ...]:
    measure = config.measure
    return config.device, measure.preload, measure.seed, measure.threads, measure.pass_env, measure.reuse_caches


@contextmanager
def running_bench(logs: Path) -> Iterator[SharedBench]:
    """As ``open_bench``, but that interrupts reach the tests meanwhile, and that processes of other tests are spared."""
    adopt_orphans()
    config = Config(
        root=logs, project="shared", workload="none.py:none", measure=MeasureSettings(), store=StoreSettings()
    )
    said: list[str] = []
    with scratch_folder() as scratch:
        bench = Bench(config, scratch=scratch, logs=logs.resolve(), say=said.append)
        try:
            bench.servers.start(ServerKey())
            yield SharedBench(bench, said)
        finally:
            bench.servers.close()
            kill_leftovers(scratch, spare=children())
