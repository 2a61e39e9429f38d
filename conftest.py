"""What every test starts from, whoever starts them: a developer's shell, a git hook, a job of a CI host, `nohup`."""

from __future__ import annotations

import gc
import importlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from perfgate.system.garbage import quiet
from tests.exit_code import ExitCode
from tests.samples import CurrentTest

if TYPE_CHECKING:
    from tests.fakes.postgres import PostgresServer
    from tests.shared_bench import SharedBench

# The same examples every time, and no limit on what one of them takes: a test that fails today and not tomorrow proves nothing.
# Half as many as is usual, for the time that they take.
settings.register_profile(
    "perfgate",
    max_examples=50,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("perfgate")
# Constants of imported modules would be examples too, and which ones are imported depends on the tests that ran before in this
# process. Hypothesis has no setting for that; to parse them takes seven seconds in a fresh clone.
providers._get_local_constants = lambda: providers._local_constants  # type: ignore[assignment]

# What perfgate, git and pytest's own output obey, and what a CI host tells its jobs.
_PREFIXES = (
    "ACTIONS_",
    "CI_",
    "GITHUB_",
    "GITLAB_",
    "GITEA_",
    "GITEE_",
    "GIT_",
    "PERFGATE_",
    "PG",
    "RUNNER_",
)
_NAMES = ("CI", "COLUMNS", "FORCE_COLOR", "NO_COLOR")
# A machine's one lock is that of all who measure on it; the others are switches of the tests themselves.
_KEPT = (
    "PERFGATE_LOCK",
    "PERFGATE_WRITE_GOLDEN",
    "PERFGATE_FUZZ_ARGUMENTS",
    "PERFGATE_RECORDINGS",
)

_SESSION = ExitStack()
_TESTS = Path(__file__).parent / "tests"

# Tests that are imported from a module that is none itself.
pytest.register_assert_rewrite(
    "tests.contract.forge_suite", "tests.contract.artifact_suite"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--most-skipped",
        type=int,
        metavar="N",
        help="fail if more than N tests are skipped, and list them",
    )


def pytest_configure() -> None:
    """Forget settings that the tests do not make themselves, before any module reads them."""
    for name in list(os.environ):
        if (name.startswith(_PREFIXES) or name in _NAMES) and name not in _KEPT:
            del os.environ[name]
    # The servers that tests start are on this machine.
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(
            filter(None, (os.environ.get(name), "127.0.0.1", "localhost"))
        )
    # What one test reads is not another's answer, nor that of whoever runs them.
    os.environ["PERFGATE_NO_TRACE_CACHE"] = "1"
    # The tests read English, in whatever language their user reads.
    os.environ.pop("LANGUAGE", None)
    os.environ["LC_ALL"] = "C.UTF-8"
    # Signing, hooks or a main branch of another name are the user's own affair.
    os.environ.update(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1")
    # A shell ignores Ctrl-C for what it starts in the background, and all processes that tests start would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_assertrepr_compare(left: object, right: object) -> None:
    """Print what an unexpected exit code of a command has to explain; pytest would cut an explanation off after eight lines."""
    for value in (left, right, *(left if isinstance(left, tuple) else ())):
        if isinstance(value, ExitCode):
            sys.stdout.write(value.explanation())


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark every test of a folder in tests/ that has the name of a marker, and those that open pages in Chromium."""
    folder = _folder_of(item.path)
    if folder in _marker_names(item.config):
        item.add_marker(folder)
    if "chromium" in getattr(item, "fixturenames", ()):
        item.add_marker("browser")


@cache
def _folder_of(path: Path) -> str:
    """The folder of tests/ that a test module lies in, or nothing."""
    if not path.is_relative_to(_TESTS):
        return ""
    folders = path.relative_to(_TESTS).parts[:-1]
    return folders[0] if folders else ""


@cache
def _marker_names(config: pytest.Config) -> frozenset[str]:
    return frozenset(line.partition(":")[0] for line in config.getini("markers"))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where more tests are skipped than --most-skipped allows: what is skipped proves nothing."""
    most = session.config.option.most_skipped
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if most is None or reporter is None or hasattr(session.config, "workerinput"):
        return
    skipped = reporter.stats.get("skipped", [])
    reporter.ensure_newline()
    reporter.write_line(f"{len(skipped)} tests skipped, at most {most} may be")
    if len(skipped) > most:
        for report in skipped:
            reporter.write_line(f"{report.nodeid}: {report.longrepr[-1]}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let a test read recordings only with the marker, so that `make test` is the same whether they are there or not."""
    CurrentTest.marked = item.get_closest_marker("recordings") is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out such a folder, which takes seconds to import, if its marker is deselected."""
    return (
        True
        if collection_path.parent == _TESTS
        and _is_deselected(collection_path.name, config)
        else None
    )


def _is_deselected(folder: str, config: pytest.Config) -> bool:
    return folder in re.findall(r"not (\w+)", config.option.markexpr)


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each process of xdist import a share of the test modules before it collects all of them.

    In a fresh clone pytest rewrites the assertions of every module, which takes as long as everything else that collecting
    does. The processes collect in the same order at the same time, and each would rewrite all of them.
    """
    # Collecting makes many objects and no garbage: looking for it takes a third of the time.
    gc.disable()
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    files = sorted(_TESTS.rglob("test_*.py"))
    first, step = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in files[first::step]:
        parts = path.relative_to(_TESTS.parent).with_suffix("").parts
        # Collecting reports a module that cannot be imported.
        if not _is_deselected(parts[1], session.config):
            with suppress(Exception, pytest.skip.Exception):
                importlib.import_module(".".join(parts))


def pytest_collection_finish() -> None:
    """Freeze the tests themselves: perfgate collects garbage around what it measures, which would walk over them each time."""
    gc.freeze()  # before ``quiet`` looks for garbage in them, which takes a second
    _SESSION.enter_context(quiet())
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def _earlier_modules_are_frozen() -> None:
    """Freeze what earlier test modules left, as above: the fake devices collect a thousand times in one test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for all tests of this process; each makes a database of its own."""
    from tests.fakes.postgres import running_postgres

    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBench]:
    """A bench for all tests of this process that run real workers."""
    from tests.shared_bench import running_bench

    with running_bench(tmp_path_factory.mktemp("logs")) as shared:
        yield shared
