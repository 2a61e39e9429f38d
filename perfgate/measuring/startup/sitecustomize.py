"""Runs at the start of every Python process of a job: report imports, and catch the
signal that starts and ends a profile.

Until the signal comes there is no thread, and no other import of perfgate, unless the
whole run is profiled, as for a command. The sitecustomize that this file hides runs
after it.
"""

import contextlib
import importlib.util
import os
import signal
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def _toggle(_number: int, _frame: object) -> None:
    from perfgate.measuring import operator_recorder, stack_sampler

    stack_sampler.toggle()
    operator_recorder.toggle()


def _run_hidden() -> None:
    here = Path(__file__).resolve().parent
    elsewhere = [path for path in sys.path if Path(path or ".").resolve() != here]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "PERFGATE_LOADS" in os.environ:
    with contextlib.suppress(
        ImportError
    ):  # an interpreter with another import path does not find perfgate
        from perfgate.system.loads import report_loads

        report_loads()
_FOLDER = Path(os.environ.get("PERFGATE_PROFILE") or os.devnull)
if Path(os.devnull) != _FOLDER:
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGRTMAX - 4, _toggle)
_run_hidden()
if (_FOLDER / "from-start").exists():
    from perfgate.measuring.stack_sampler import sample_from_start

    sample_from_start(_FOLDER)
