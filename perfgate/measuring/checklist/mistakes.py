"""Explain an exception of the project's code to its author: the error on one line, its
place, and the remedy.
"""

from __future__ import annotations

import difflib
import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from perfgate.document.message import Message
from perfgate.errors import PerfgateError
from perfgate.measuring.checklist.symptoms import hint_on
from perfgate.measuring.counting.tally import SourceLines
from perfgate.measuring.workload.bound import BoundWorkload, answered_no
from perfgate.system.folders import PACKAGE

MAX_MESSAGE = 2_000
MAX_TRACEBACK = 20_000
_MAX_LINE = 400
_STANDARD_ERROR = 2
_MOST_PRINTED = 1 << 16
# Folders that hold other people's packages, or no modules.
_NOT_SEARCHED = {"site-packages", "node_modules", "build", "dist", "__pycache__"}
# How perfgate calls the functions of a workload that always take the same parameters.
_CALLS = {
    BoundWorkload.__init__.__code__: "build(device)",
    BoundWorkload.preprocess.__code__: "preprocess(raw)",
}


class ProjectCode(NamedTuple):
    """The project that is measured: the checkout and, if known, its folders on Python's
    path and the kind of device.
    """

    root: Path
    python_path: list[str] | None = None
    device_kind: str | None = None


def one_line(error: BaseException) -> str:
    """The error as Python writes it at the end of a traceback, without further lines.

    The last line of a SyntaxError is its message. The traceback module survives
    exceptions that fail to print themselves.
    """
    lines = (
        "".join(traceback.format_exception_only(type(error), error))
        .strip()
        .splitlines()
    )
    return lines[-1 if isinstance(error, SyntaxError) else 0][:MAX_MESSAGE]


def own_traceback(error: BaseException) -> str | None:
    """The traceback from the first frame outside perfgate; None if there is none and
    the error's line is complete.
    """
    frames = error.__traceback__
    while frames is not None and _is_our_file(frames.tb_frame):
        frames = frames.tb_next
    if frames is None:
        if isinstance(error, (PerfgateError, SyntaxError, ModuleNotFoundError)):
            return None
        frames = error.__traceback__
    return "".join(traceback.format_exception(type(error), error, frames))[
        -MAX_TRACEBACK:
    ]


def explained(error: BaseException, project: ProjectCode | None) -> Message | str:
    """The error on one line, with the project's innermost running line, and a hint if
    there is one.
    """
    if isinstance(error, PerfgateError):  # it is already a complete message
        return str(error)[:MAX_MESSAGE]
    line = one_line(error)[:_MAX_LINE]
    if project is None:
        return line
    place = _place(error, SourceLines(project.root))
    hint = _hint_on_project(error, project)
    if hint is None:
        symptom = hint_on(error, device_kind=project.device_kind, at_call=place is None)
        if symptom is not None:
            hint, words = symptom
            line = _telling(line, words)
    if place or hint:  # a sentence follows
        line = line.rstrip(" .:!")
    message: Message | str = line
    if place:
        message = Message("mistake.at", {"error": line, "place": place})
    if hint:
        message = Message("mistake.hint", {"error": message, "hint": hint})
    return message


def explained_exit(
    error: SystemExit, project: ProjectCode | None, printed: str
) -> Message:
    """The exit of a process that loads or calls a workload: its place, the last line
    printed before, and the remedy.
    """
    line = one_line(error)[:_MAX_LINE]
    ended = Message("worker.ended-itself", {"error": line})
    if printed and printed not in line:
        ended = Message(
            "worker.ended-itself-printing", {"error": line, "printed": printed}
        )
    if project and (place := _place(error, SourceLines(project.root))):
        ended = Message("mistake.at", {"error": ended, "place": place})
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "<module>" and not _is_our_file(frame):
            return Message(
                "mistake.hint",
                {"error": ended, "hint": Message("mistake.exit-in-import")},
            )
    return ended


class PrintedText:
    """What this process prints to the standard error from now on, if that is a file."""

    def __init__(self) -> None:
        self._begins = 0
        with suppress(OSError):  # the project's code has closed it
            self._begins = os.fstat(_STANDARD_ERROR).st_size

    def last_line(self) -> str:
        try:
            with Path(f"/proc/self/fd/{_STANDARD_ERROR}").open("rb") as file:
                file.seek(max(self._begins, file.seek(0, os.SEEK_END) - _MOST_PRINTED))
                lines = file.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        if lines:
            return lines[-1].strip()[:_MAX_LINE]
        return ""


def _telling(line: str, words: str) -> str:
    """The line to the end of the sentence that shows the mistake: torch goes on with
    remedies that do not fit here.
    """
    end = line.find(words) + len(words) if words in line else 0
    stop = re.compile(r"[.!](?= [A-Z])").search(line, end)
    if stop:
        return line[: stop.start()]
    return line


def _is_our_file(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(
        ("<frozen importlib", importlib.__file__, f"{PACKAGE}{os.sep}")
    )


def _place(error: BaseException, lines: SourceLines) -> str | None:
    if isinstance(error, SyntaxError) and error.filename:
        return lines.at(error.filename, error.lineno)
    frames = traceback.walk_tb(error.__traceback__)
    return lines.innermost(
        (frame.f_code.co_filename, number) for frame, number in frames
    )


# --- hints


def _hint_on_project(error: BaseException, project: ProjectCode) -> Message | None:
    """The advice that takes a look at the project, or at perfgate's call of it."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing_module(error.name, project)
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
        path = (project.root / error.filename).resolve()
        if project.root.resolve() in path.parents:
            inside = path.relative_to(project.root.resolve()).as_posix()
            return Message(
                "mistake.no-file", {"file": inside, "value": json.dumps([inside])}
            )
        if Path.home() in path.parents:
            return Message(
                "mistake.no-home",
                {"file": f"~/{path.relative_to(Path.home()).as_posix()}"},
            )
        return None
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if (
        isinstance(error, KeyError)
        and frames
        and frames[-1].f_code is type(os.environ).__getitem__.__code__
    ):
        return Message("mistake.no-variable", {"name": str(error.args[0])})
    if isinstance(error, TypeError) and frames and (call := _refused_call(frames[-1])):
        return Message("mistake.signature", {"call": call})
    return None


def _refused_call(frame: FrameType) -> str | None:
    """perfgate's own call of a function of the workload,
    ``inputs(batch, seed, length)``, if its parameters refused that.

    ``frame`` raised a TypeError.
    """
    bound = frame.f_locals.get("self")
    if not isinstance(bound, BoundWorkload):
        if frame.f_code is answered_no.__code__:
            return "check(output, inputs)"
        return None
    if frame.f_code is BoundWorkload.raw_inputs.__code__:
        return f"inputs({', '.join(['batch', 'seed', *bound.workload.shapes[frame.f_locals['shape']]])})"
    if frame.f_code is BoundWorkload.forward.__code__:
        if bound.workload.train_step:
            return "train_step(model, inputs)"
        if bound.workload.call:
            return "call(model, inputs)"
        return None
    return _CALLS.get(frame.f_code)


def _missing_module(name: str, project: ProjectCode) -> Message | None:
    if project.python_path is None:
        return None
    top, _, rest = name.partition(".")
    if unfilled := _unfilled_submodule(top, project.root, project.python_path):
        return unfilled
    close = _close_module(name, project.root, project.python_path)
    if rest:
        if close:
            return Message("mistake.other-name", {"name": close})
        return None
    for folder in _folders(project.root):
        module = project.root / folder / top
        is_there = module.with_name(f"{top}.py").is_file() or any(module.glob("*.py"))
        if is_there and folder not in project.python_path:
            value = json.dumps([*project.python_path, folder])
            return Message(
                "mistake.python-path", {"module": top, "folder": folder, "value": value}
            )
    if close:
        return Message(
            "mistake.other-module",
            {"name": close, "module": top, "python": sys.executable},
        )
    return Message("mistake.not-installed", {"module": top, "python": sys.executable})


def _unfilled_submodule(
    module: str, root: Path, python_path: list[str]
) -> Message | None:
    """The advice for a module that may lie in a submodule with an empty folder."""
    try:
        text = (root / ".gitmodules").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for path in re.findall(r"^\s*path\s*=\s*(.+?)\s*$", text, flags=re.MULTILINE):
        is_searched = module in Path(path).parts or any(
            Path(folder).is_relative_to(path) for folder in python_path
        )
        folder = root / path
        if is_searched and not (folder.is_dir() and any(folder.iterdir())):
            return Message("mistake.submodule", {"path": path})
    return None


def _close_module(name: str, root: Path, python_path: list[str]) -> str | None:
    """The module of the project, next to the missing one, with the most similar name."""
    package, _, last = name.rpartition(".")
    for folder in python_path:
        siblings = root.joinpath(folder, *filter(None, package.split("."))).glob("*")
        names = [
            path.stem
            for path in siblings
            if path.suffix == ".py" or (path / "__init__.py").is_file()
        ]
        if close := difflib.get_close_matches(last, names, n=1):
            if package:
                return f"{package}.{close[0]}"
            return close[0]
    return None


def _folders(root: Path) -> Iterator[str]:
    """The folders of the project in which a package may lie, outer folders first, two
    deep.
    """
    level = [root]
    for _ in range(2):
        folders = chain.from_iterable(map(Path.iterdir, level))
        level = sorted(filter(_may_hold_code, folders))
        for folder in level:
            yield folder.relative_to(root).as_posix()


def _may_hold_code(folder: Path) -> bool:
    searched = not folder.name.startswith(".") and folder.name not in _NOT_SEARCHED
    return (
        searched
        and folder.is_dir()
        and not folder.is_symlink()
        and not (folder / "pyvenv.cfg").exists()
    )
