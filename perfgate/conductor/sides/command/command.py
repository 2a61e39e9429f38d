"""A command as a side: every turn is a run of the program from start to end, and the
numbers that it reports.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import struct
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from perfgate.catalogue.names import NUMBER
from perfgate.conductor.results.places import find_number
from perfgate.conductor.results.result import Results, read_results, written_file
from perfgate.conductor.sides.program import ProgramEnd, SideError, SideProgram
from perfgate.conductor.sides.side import ProgramSide, SidePlace, SidePlan, times_of
from perfgate.conductor.sides.stacks.stacks import SideStacks, sample_run
from perfgate.document.job import PYTHON_LINES, JobNumber, TurnResult
from perfgate.errors import ResultsError
from perfgate.job_settings import JobReference, is_gating
from perfgate.system import line_counter
from perfgate.system.logs import only_a_file

METRICS_VARIABLE = "PERFGATE_METRICS"
# Every Python of a counted run counts its lines into a file of this folder.
FOLDER_VARIABLE = "PERFGATE_LINES"
_COUNT = struct.Struct("=Q")
# Counting makes Python several times slower, and a side counts twice: together they
# take half the budget at most.
COUNTING_SHARE = 1 / 8
CPU, DURATION, MEMORY = "command.cpu", "command.seconds", "command.memory"


class CommandSide(ProgramSide):
    """One side of a command.

    ``numbers`` are the first run's; a later run with others fails.
    """

    plan = SidePlan(turns=2)

    def __init__(self, reference: JobReference, place: SidePlace) -> None:
        super().__init__(reference, place)
        self.numbers: tuple[JobNumber, ...] = ()

    def start(self) -> None:
        """Every turn starts the program anew."""

    def warm_up(self) -> None:
        """A run warms itself up."""

    def count(self) -> Mapping[str, int]:
        """Run it once more and count the executed lines of Python; 0 if that fails,
        takes too long, or runs none.
        """
        with tempfile.TemporaryDirectory() as folder:
            line = counting(
                self._settings.command, self._place.environment, Path(folder)
            )
            lines = 0
            if self._runs_to_its_end(line):
                lines = counted_lines(Path(folder))
            return {PYTHON_LINES: lines}

    def _runs_to_its_end(self, line: str) -> bool:
        """Run a line that takes no turn; return whether it ends well before too much
        time has passed.
        """
        settings = self._settings
        program = self._start_program(line)
        longest = min(settings.timeout, COUNTING_SHARE * settings.budget)
        try:
            return program.wait(longest).code == 0
        except SideError:
            return False
        finally:
            self.stop()

    @property
    def _metrics(self) -> Path:
        return self._place.log.with_suffix(".metrics")

    def _start_program(self, line: str) -> SideProgram:
        self._program = self._place.run(line, {METRICS_VARIABLE: str(self._metrics)})
        return self._program

    def turn(self, number: int) -> TurnResult:  # noqa: ARG002 - every run does the same work
        metrics = self._metrics
        _remove(metrics)
        began = time.time()
        line = self._settings.command
        program = self._start_program(line)
        try:
            end = program.wait(self._settings.timeout)
            self._place.left_behind.append(end.left)
            if end.signal:
                raise program.failed("exit", "job.killed", line=line, signal=end.signal)
            if end.code:
                raise program.failed("exit", "job.exited", line=line, code=end.code)
            results = self._results(program.output(), metrics, not_before=began - 1)
        except ResultsError as error:
            raise program.failed(
                "protocol", "job.no-results", line=line, why=str(error)
            ) from error
        finally:
            self.stop()
        return self._turn(end, results)

    def profile(self, number: int) -> SideStacks | None:  # noqa: ARG002 - every run does the same work
        """Sample the stacks of all Python processes of one run more; None where that
        fails or takes long.
        """
        return sample_run(
            self._place.profile, lambda: self._runs_to_its_end(self._settings.command)
        )

    def _turn(self, end: ProgramEnd, results: Results) -> TurnResult:
        values = {CPU: end.cpu, DURATION: end.seconds, MEMORY: end.memory}
        samples = []
        for number in results.numbers:
            metric = f"{NUMBER}{number.name}"
            values[metric] = number.value
            if number.samples and number.unit == "s" and max(number.samples) < math.inf:
                samples.append(times_of(metric, number.samples))
        self.numbers = self.numbers or tuple(self._listed(results))
        return TurnResult(values=values, work=results.work, samples=samples)

    def _listed(self, results: Results) -> list[JobNumber]:
        """The numbers of a run. Its CPU time gates if the program reports no number."""
        own = []
        for number in results.numbers:
            gating = is_gating(number.name, self._settings.gates)
            metric = f"{NUMBER}{number.name}"
            own.append(
                JobNumber(
                    metric=metric, unit=number.unit, better=number.better, gating=gating
                )
            )
        return [
            *own,
            JobNumber(metric=CPU, unit="s", better="lower", gating=not own),
            JobNumber(metric=DURATION, unit="s", better="lower", gating=False),
            JobNumber(metric=MEMORY, unit="B", better="lower", gating=False),
        ]

    def _results(self, output: str, metrics: Path, *, not_before: float) -> Results:
        """The numbers of a run that perfgate.toml names, or else of the file's format,
        or else of our own contract.
        """
        settings = self._settings
        file = None
        if settings.file:
            file = written_file(self._place.root, settings.file, not_before)
        if settings.numbers:
            numbers = []
            for name, number in settings.numbers.items():
                numbers.append(find_number(name, number, output=output, file=file))
            return Results(numbers, {}, "named")
        if file is not None:
            return read_results(file, format=settings.format)
        if metrics.is_file():
            return read_results(metrics, format="json_lines")
        if os.path.lexists(metrics):
            raise ResultsError(
                "{variable} names a file to write, and the program put something else there",
                variable=METRICS_VARIABLE,
            )
        return Results([], {}, "none")


def _remove(path: Path) -> None:
    """Remove a file, or what a program put in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# --- the lines of Python that it runs, counted in a separate run, because counting
# takes time


def counting(line: str, environment: Mapping[str, str], folder: Path) -> str:
    """A shell line that runs ``line`` so that every Python counts the lines that it
    runs into a file of ``folder``.

    Not an environment: the keeper of the program is a Python too.
    """
    (hook,) = line_counter.__path__
    path = os.pathsep.join([str(hook), *filter(None, [environment.get("PYTHONPATH")])])
    return f"export {FOLDER_VARIABLE}={shlex.quote(str(folder))} PYTHONPATH={shlex.quote(path)}; {line}"


def counted_lines(folder: Path) -> int:
    """The total over all processes; 0 if none of them ran Python or counted."""
    # The program may have removed the folder, or put other things into it.
    return sum(_count_in(path) for path in folder.glob("*"))


def _count_in(path: Path) -> int:
    try:
        with open(path, "rb", opener=only_a_file) as file:
            content = file.read(_COUNT.size + 1)
    except OSError:
        return 0
    if len(content) != _COUNT.size:
        return 0
    (lines,) = _COUNT.unpack(content)
    return int(lines)
