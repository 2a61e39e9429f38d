"""Benchmarks that a project has already, as workloads: of pytest-benchmark, asv and pyperf.

The benchmark is loaded once in a process that stays, and one call of the workload is one call of the timed function. So its
turns take as long as calls do, and all that is counted of a call is counted of it. It lies in the checkout of each side.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import runpy
import shlex
import sys
import threading
import timeit
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from perfgate.document.message import Message, WorkloadError
from perfgate.measuring.workload.workload import Workload

_MOST_TEXT = 2000
Timed = Callable[[], Any]


def _workload(load: Callable[..., Timed], *arguments: object) -> Workload:
    """The workload with the timed function of a benchmark as its model; the function decides whether gradients are recorded."""

    # Names are default values, so that they are part of the workload file's hash.
    def build(
        _device: object, *, _names: tuple[object, ...] = (load.__name__, *arguments)
    ) -> Timed:
        return load(*arguments)

    def inputs(_batch: int, _seed: int) -> tuple[()]:
        return ()

    def call(timed: Timed, _inputs: tuple[()]) -> Any:
        return timed()

    return Workload(build, inputs, call, batch_sizes=(1,), grad=True)


# --- pytest-benchmark


def pytest_benchmark(test: str) -> Workload:
    """A workload that calls the function that a test passes to the fixture ``benchmark`` of pytest-benchmark.

    The test runs once, with its assertions, and its fixtures stay as they are. ``pedantic`` with ``setup`` is refused: the
    setup would be timed. pytest must be installed; pytest-benchmark need not be.

    Args:
        test: The test as pytest names it: file, function and parameters.

    Example:
        total = pytest_benchmark("bench/test_sum.py::test_sum[10]")
    """
    return _workload(_timed_by_test, test)


# Without plug-ins that would record, redirect or rewrite something in every call.
_PYTEST_OPTIONS = shlex.split(
    "-q -s --assert=plain -o addopts= -p no:benchmark -p no:cacheprovider -p no:faulthandler -p no:logging -p no:warnings"
)


def _timed_by_test(test: str) -> Timed:
    """Run a test up to its teardown, in a thread that stays there with its fixtures, and return the timed function."""
    import pytest

    capture = _Capture()
    run = partial(pytest.main, [*_PYTEST_OPTIONS, test], plugins=[capture.plugin()])

    def work() -> None:
        try:
            code = run()
            capture.failures.append(
                f"pytest ended with {code!s} before benchmark was called"
            )
        except BaseException as error:  # noqa: BLE001 - what pytest raises must not leave the other thread waiting
            capture.failures.append(f"{type(error).__name__}: {error}")
        finally:
            capture.is_over.set()

    threading.Thread(target=work, daemon=True).start()
    capture.is_over.wait()
    if capture.failures or capture.timed is None:
        raise WorkloadError(
            Message(
                "workload.no-benchmark",
                {"test": test, "error": capture.failures[0][-_MOST_TEXT:]},
            )
        )
    return capture.timed


class _Capture:
    """The function that a test passed to ``benchmark``, and the reason if the test failed."""

    def __init__(self) -> None:
        self.timed: Timed | None = None
        self.failures: list[str] = []
        self.is_over = threading.Event()

    def plugin(self) -> object:
        import pytest

        capture = self

        class Plugin:
            def pytest_configure(self, config: pytest.Config) -> None:
                config.addinivalue_line("markers", "benchmark: of pytest-benchmark")

            @pytest.fixture
            def benchmark(self) -> Benchmark:
                return Benchmark(capture)

            def pytest_collectreport(self, report: pytest.CollectReport) -> None:
                capture.note(report)

            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                capture.note(report)

            @pytest.hookimpl(tryfirst=True)
            def pytest_runtest_teardown(self) -> None:
                # The fixtures of the test are still alive here. They live until the process ends.
                if capture.timed is not None and not capture.failures:
                    capture.is_over.set()
                    threading.Event().wait()

        return Plugin()

    def note(self, report: Any) -> None:
        if report.failed or report.skipped:
            self.failures.append(str(report.longrepr))


class Benchmark:
    """The fixture ``benchmark`` of pytest-benchmark: it calls the function once and keeps it."""

    def __init__(self, capture: _Capture) -> None:
        self._capture = capture
        self.group: str | None = None
        self.name = ""
        self.extra_info: dict[str, Any] = {}
        self.enabled = True

    def __call__(
        self, function: Callable[..., Any], *arguments: Any, **keywords: Any
    ) -> Any:
        if self._capture.timed is not None:
            raise WorkloadError(Message("workload.benchmark-twice"))
        self._capture.timed = partial(function, *arguments, **keywords)
        return self._capture.timed()

    def pedantic(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        **_rounds: Any,
    ) -> Any:
        if setup is not None:
            raise WorkloadError(Message("workload.pedantic-setup"))
        return self(target, *args, **(kwargs or {}))


# --- asv


def asv_benchmark(file: str, name: str, *parameters: Any) -> Workload:
    """A workload that calls a ``time_`` function of asv.

    ``setup_cache`` and ``setup`` run once, before the first call. A benchmark that needs its setup before every call
    (``number = 1``) is refused.

    Args:
        file: The file of the benchmark.
        name: The function in it, with its class if it has one.
        parameters: One value for each parameter of the benchmark.

    Example:
        total = asv_benchmark("benchmarks/suite.py", "Suite.time_sum", 10)
    """
    return _workload(_timed_by_asv, file, name, *parameters)


def _timed_by_asv(file: str, name: str, *parameters: Any) -> Timed:
    owner: Any = _import(Path(file))
    *classes, function = name.split(".")
    for part in classes:
        owner = _attribute(owner, part, file)
    owner = owner() if inspect.isclass(owner) else owner
    timed = _attribute(owner, function, file)
    if not function.startswith("time_"):
        raise WorkloadError(Message("workload.not-timed", {"name": name, "file": file}))
    if getattr(timed, "number", getattr(owner, "number", 0)) == 1:
        raise WorkloadError(
            Message("workload.timed-setup", {"name": name, "file": file})
        )
    cache = getattr(timed, "setup_cache", getattr(owner, "setup_cache", None))
    arguments = parameters
    if cache is not None:
        arguments = (cache(), *parameters)
    for setting in (owner, timed):
        if hasattr(setting, "setup"):
            setting.setup(*arguments)
    return partial(timed, *arguments)


def _import(file: Path) -> Any:
    """The module of a file, imported as part of the packages around it."""
    if not file.is_file():
        raise WorkloadError(Message("workload.no-benchmarks", {"file": str(file)}))
    folder, parts = file.resolve().parent, [file.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    sys.path.insert(0, str(folder))
    return importlib.import_module(".".join(parts))


def _attribute(owner: Any, name: str, file: str) -> Any:
    if not hasattr(owner, name):
        names = ", ".join(
            sorted(member for member in dir(owner) if not member.startswith("_"))
        )
        raise WorkloadError(
            Message(
                "workload.missing-attribute",
                {"file": file, "name": repr(name), "names": names},
            )
        )
    return getattr(owner, name)


# --- pyperf


def pyperf_benchmark(script: str, name: str) -> Workload:
    """A workload that calls one benchmark of a pyperf script.

    The script runs once, as a program would, with a ``Runner`` that only keeps the benchmarks. pyperf must be installed.

    Args:
        script: The file of the script.
        name: The name that the script gives the benchmark.

    Example:
        total = pyperf_benchmark("bench/sort.py", "sort")
    """
    return _workload(_timed_by_pyperf, script, name)


def _timed_by_pyperf(script: str, name: str) -> Timed:
    pyperf = importlib.import_module("pyperf")
    benchmarks: dict[str, Timed] = {}
    with (
        mock.patch.object(pyperf, "Runner", partial(NamingRunner, benchmarks)),
        mock.patch.object(sys, "argv", [script]),
    ):
        sys.path.insert(0, str(Path(script).resolve().parent))
        runpy.run_path(script, run_name="__main__")
    if name not in benchmarks:
        raise WorkloadError(
            Message(
                "workload.missing-benchmark",
                {
                    "file": script,
                    "name": repr(name),
                    "names": ", ".join(benchmarks) or "–",
                },
            )
        )
    return benchmarks[name]


class NamingRunner:
    """A ``pyperf.Runner`` that keeps each benchmark by its name."""

    def __init__(self, benchmarks: dict[str, Timed], **_options: Any) -> None:
        self._benchmarks = benchmarks
        self.argparser = argparse.ArgumentParser()
        self.metadata: dict[str, Any] = {}
        self.args: argparse.Namespace | None = None

    def parse_args(self, args: list[str] | None = None) -> argparse.Namespace:
        self.args = self.argparser.parse_args(args or [])
        return self.args

    def bench_func(
        self, name: str, func: Callable[..., Any], *args: Any, **_options: Any
    ) -> None:
        self._benchmarks[name] = partial(func, *args)

    def bench_time_func(
        self, name: str, time_func: Callable[..., Any], *args: Any, **_options: Any
    ) -> None:
        self._benchmarks[name] = partial(time_func, 1, *args)

    def bench_async_func(
        self, name: str, func: Callable[..., Any], *args: Any, **_options: Any
    ) -> None:
        loop = asyncio.new_event_loop()

        def call() -> Any:
            return loop.run_until_complete(func(*args))

        weakref.finalize(call, loop.close)
        self._benchmarks[name] = call

    def bench_command(self, name: str, command: list[str]) -> None:
        """A whole program cannot be called as a function."""

    def timeit(
        self,
        name: str,
        stmt: Any = None,
        setup: Any = "pass",
        globals: Any = None,  # noqa: A002 - as pyperf
        **_options: Any,
    ) -> None:
        timer = timeit.Timer(_joined(stmt or name), _joined(setup), globals=globals)
        self._benchmarks[name] = partial(timer.timeit, 1)


def _joined(statement: Any) -> Any:
    if isinstance(statement, (list, tuple)):
        return "\n".join(statement)
    return statement
