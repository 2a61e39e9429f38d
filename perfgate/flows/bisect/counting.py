"""The exact counters of a state without a gate: it is counted alone, on a fork server
that stays from state to state.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.conductor.sides.checklist.checklist import ChecklistPlan, run_checklist
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.virtualenv import differing_files, read_requirements
from perfgate.config import Config, WorkloadReference, load_config
from perfgate.document.comparison import Comparison
from perfgate.document.message import as_message, english
from perfgate.document.run import RunDocument, Side, Source
from perfgate.document.testbed import Testbed
from perfgate.flows.bisect.search import ImpossibleStateError, TrialSides
from perfgate.flows.shared.doors import Progress
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.shared.session import assemble_run, now, start_session
from perfgate.flows.trust.commits import config_at
from perfgate.git.repository import Repository
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.project import below

COUNTING_STEP = 4
# The folder of the workers' logs, inside the bisection's.
_LOGS = "counts"


class _Opened(NamedTuple):
    """A bench with one interpreter, and the settings that it serves."""

    bench: Bench
    settings: Config
    python: Path | None
    testbed: Testbed


class _OldState(NamedTuple):
    """What the counters of the old state depend on: its commit and interpreter, the
    settings, and the workload files.
    """

    commit: str
    python: Path | None
    settings: Config
    files: tuple[str, ...]


@dataclass
class StateCounter(AbstractContextManager["StateCounter"]):
    """Counts states, and compares them with the old state as a gate does.

    The old state is counted once for all states with the same settings and workload
    files. At the end of the context its fork server ends.
    """

    directory: Path
    options: CheckOptions
    progress: Progress
    _opened: _Opened | None = None
    _old: tuple[_OldState, RunDocument] | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def compare(
        self, sides: TrialSides, workloads: Collection[str]
    ) -> Sequence[Comparison] | None:
        """The counters of these workloads on both sides; None if only a gate can tell
        (e.g. packages differ).

        Raises ImpossibleStateError if the code of the new state does not load,
        MeasuringError if the machine cannot measure, and ConfigError or RepositoryError
        for a commit without a valid configuration or checkout.
        """
        repository, named = Repository(self.directory), self.options.head or "HEAD"
        before = repository.resolve(sides.base or named)
        after = repository.resolve(sides.head or named)
        of_base = config_at(self.directory, before, None).config
        of_head = config_at(self.directory, after, None).config
        if of_head is None or not set(workloads) <= {
            reference.name for reference in of_head.references
        }:
            return None
        prefix = repository.prefix(self.directory)
        link = [below(prefix, entry) for entry in of_head.measure.link]
        with repository.worktrees({"base": before, "head": after}, link=link) as trees:
            base, head = trees["base"] / prefix, trees["head"] / prefix
            config = replace(
                load_config(head, device=self.options.device), project=of_head.project
            )
            if sides.comparing == "code" and _has_own_environment(
                config, of_base, base, head
            ):
                return None
            references = [
                reference
                for reference in config.references
                if reference.name in workloads
            ]
            counted = self._count(
                config,
                Checkout(head, head, sides.head_python),
                references,
                after,
                "head",
            )
            for workload in counted.workloads:
                # Code that fails to load: a gate would find the same.
                if workload.error and workload.error.kind == "exception":
                    raise ImpossibleStateError(
                        english(as_message(workload.error.message))
                    )
            old = Checkout(base, harness=head, python=sides.base_python)
            earlier = self._count_old(config, old, references, before, counted)
        if any(workload.error for workload in (*earlier.workloads, *counted.workloads)):
            return None
        work = WorkTable(Evidence(earlier, counted))
        return compare_counters(work.counted, (of_base or config).policy())

    def _count_old(
        self,
        config: Config,
        old: Checkout,
        references: Sequence[WorkloadReference],
        commit: str,
        counted: RunDocument,
    ) -> RunDocument:
        """The count of the old state by the workload files of a new one; kept, as most
        new states have the same.
        """
        files = tuple(workload.sha256 for workload in counted.workloads)
        state = _OldState(commit, old.python, _settings(config), files)
        if self._old is None or self._old[0] != state:
            self._old = state, self._count(config, old, references, commit, "base")
        return self._old[1]

    def _count(
        self,
        config: Config,
        checkout: Checkout,
        references: Sequence[WorkloadReference],
        commit: str,
        side: Side,
    ) -> RunDocument:
        # The bench of an interpreter under these settings; another one is closed.
        settings = _settings(config)
        python = checkout.python
        opened = self._opened
        if opened is None or (opened.settings, opened.python) != (settings, python):
            self._close()
            bench = self._stack.enter_context(
                open_bench(
                    config,
                    logs=self.options.out / _LOGS,
                    say=self.progress.status,
                    pythons=(python,),
                    of_stacks=True,
                )
            )
            opened = _Opened(bench, settings, python, bench.testbed(python))
            self._opened = opened
        session = start_session("check", config.measure.seed, None)
        # Workers have another current folder.
        with tempfile.TemporaryDirectory(
            dir=self.options.out.resolve(), prefix=".counts-"
        ) as folder:
            plan = ChecklistPlan((COUNTING_STEP,), Path(folder), leave_out_waits=True)
            findings = [
                run_checklist(opened.bench, checkout, reference, plan)
                for reference in references
            ]
            return assemble_run(
                config,
                session=replace(session, finished_at=now()),
                source=Source(commit=commit),
                testbed=opened.testbed,
                findings=findings,
                folder=Path(folder),
                side=side,
            )

    def _close(self) -> None:
        self._opened = None
        self._stack.close()


def _settings(config: Config) -> Config:
    """The configuration without the folder of its commit, so that two commits can have
    equal configurations.
    """
    return replace(config, root=Path())


def _has_own_environment(
    config: Config, of_base: Config | None, base: Path, head: Path
) -> bool:
    """Whether a gate would build a separate environment for each side."""
    setup = config.measure.setup
    if not setup:
        return False
    if of_base and of_base.measure.setup not in ("", setup):
        return True
    requirements = config.measure.requirements
    return bool(
        differing_files(
            read_requirements(base, requirements), read_requirements(head, requirements)
        )
    )
