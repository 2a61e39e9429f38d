"""Records which lines of some files this process runs, and everything that could run or
read them without being seen.

It runs in trials alone: timed processes have neither tracer nor audit hook.
"""

from __future__ import annotations

import inspect
import os
import socket
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

from perfgate.measuring.worker.packages import module_files
from perfgate.protocol import EXECUTED_LINE, LOADED

_IMPORTLIB = "<frozen importlib._bootstrap_external>"
_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
_THREADING = threading.__file__
_LISTINGS = frozenset({"os.listdir", "os.scandir"})
_NEW_PROCESSES = frozenset(
    {
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "os.system",
        "subprocess.Popen",
    }
)
# Tools of sys.monitoring without a meaning come first; the others may be free.
_TOOLS = (4, 3, 0, 1, 2, 5)


class ReadCode(NamedTuple):
    """Code of a watched file that something read as an object: a compiler may run it in
    its own way.
    """

    file: int
    first: int
    last: int


class LineRecorder:
    """Sends the executed lines of ``files`` through ``reports``, a socket of datagrams,
    each line before it runs.

    A line cannot take back its report, whatever it does. ``folders`` hold files that
    are new or gone, so listing one tells the sides apart. The project is the code below
    ``roots`` outside of installed packages.
    """

    def __init__(
        self,
        files: Sequence[str],
        folders: Iterable[str],
        roots: Iterable[str],
        reports: socket.socket,
    ) -> None:
        self._indexes = {
            os.path.realpath(file): index for index, file in enumerate(files)
        }
        self._folders = {os.path.realpath(folder) for folder in folders}
        self._roots = tuple(f"{os.path.realpath(root)}/" for root in roots)
        self._places: dict[str, tuple[int | None, bool]] = {}
        self._reports = reports
        self._looking: set[int] = set()
        self._tool: int | None = None
        self.lines: set[tuple[int, int]] = set()
        self.entered: set[CodeType] = set()
        self.read_code: set[ReadCode] = set()
        self.read_files: set[int] = set()
        self.doubts: set[str] = set()
        self.began_processes = False

    def start(self) -> None:
        """Record from now on; code that is already loaded is a doubt, because its lines
        have run.
        """
        if self._indexes.keys() & _origins():
            self.doubts.add("coverage.loaded-before")
        sys.addaudithook(self._audit)
        if not self._monitor():
            threading.settrace(self._trace)
            sys.settrace(self._trace)

    @property
    def traces_threads_of_python_alone(self) -> bool:
        """Whether threads that a library started itself run unseen, as before Python
        3.12.
        """
        return self._tool is None

    def finish(self) -> None:
        """Note what stopped the recording, if anything did."""
        if self._tool is None:
            if sys.gettrace() != self._trace:
                self.doubts.add("coverage.tracer-replaced")
            return
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        events = monitoring.events
        start = monitoring.register_callback(self._tool, events.PY_START, None)
        line = monitoring.register_callback(self._tool, events.LINE, None)
        if monitoring.get_events(self._tool) != events.PY_START or (start, line) != (
            self._start_of,
            self._line_of,
        ):
            self.doubts.add("coverage.tracer-replaced")

    def elsewhere(self, tails: Iterable[str]) -> bool:
        """Whether a module was loaded from a file outside of the project whose path has
        one of ``tails`` as its end.
        """
        endings = tuple(f"/{tail}" for tail in tails)
        return any(
            path.endswith(endings) and not path.startswith(self._roots)
            for path in _origins()
        )

    def names(self) -> list[str]:
        """The names that the project's functions use that ran, on the way they took or
        on another.
        """
        names: set[str] = set()
        for code in self.entered:
            names.update(_names_in(code))
        return sorted(names)

    def entered_functions(self, roots: Iterable[str]) -> list[str]:
        """The functions of the project that ran, as ``file:line`` of their first line
        below a root.
        """
        tops = [os.path.realpath(root) for root in roots]
        functions = set()
        for code in self.entered:
            path = os.path.realpath(code.co_filename)
            for top in tops:
                if path.startswith(f"{top}/"):
                    functions.add(f"{os.path.relpath(path, top)}:{code.co_firstlineno}")
        return sorted(functions)

    def _monitor(self) -> bool:
        monitoring: Any = getattr(sys, "monitoring", None)
        if monitoring is None:
            return False
        for tool in _TOOLS:
            if monitoring.get_tool(tool) is None:
                self._tool = tool
                break
        else:
            return False
        # Bound methods are made anew at every access.
        self._start_of = self._start
        self._line_of = self._line
        monitoring.use_tool_id(self._tool, "perfgate")
        monitoring.register_callback(
            self._tool, monitoring.events.PY_START, self._start_of
        )
        monitoring.register_callback(self._tool, monitoring.events.LINE, self._line_of)
        monitoring.set_events(self._tool, monitoring.events.PY_START)
        return True

    def _start(self, code: CodeType, _offset: int) -> Any:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        if self._enter(code) is not None:
            monitoring.set_local_events(self._tool, code, monitoring.events.LINE)
        return monitoring.DISABLE

    def _line(self, code: CodeType, line: int) -> Any:
        index = self._place(code.co_filename)[0]
        if index is not None:
            self._report(index, line)
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "call":
            return self._trace if self._enter(frame.f_code) is not None else None
        if event == "line":
            index = self._place(frame.f_code.co_filename)[0]
            if index is not None:
                self._report(index, frame.f_lineno)
        return self._trace

    def _enter(self, code: CodeType) -> int | None:
        """The index of the watched file that holds a code object which begins to run."""
        index, is_ours = self._place(code.co_filename)
        # Modules and bodies of classes have run to their end; functions may take
        # another way at a later call.
        if is_ours and code.co_flags & inspect.CO_OPTIMIZED:
            self.entered.add(code)
        return index

    def _report(self, index: int, line: int) -> None:
        place = (index, line)
        if place in self.lines:
            return
        self.lines.add(place)
        try:
            self._reports.send(EXECUTED_LINE.pack(index, line))
        except OSError:  # user code closed it
            self.doubts.add("coverage.tracer-replaced")

    def _place(self, name: str) -> tuple[int | None, bool]:
        """The index of a watched file, None of any other, and whether it belongs to the
        project.
        """
        place = self._places.get(name)
        if place is None:
            path = os.path.realpath(name)
            # Frozen modules and generated code have no file.
            is_ours = (
                path.startswith(self._roots)
                and "site-packages" not in path
                and not name.startswith("<")
            )
            place = self._places[name] = (self._indexes.get(path), is_ours)
        return place

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        thread = threading.get_ident()
        if thread in self._looking:  # our own look at an object
            return
        self._looking.add(thread)
        try:
            self._look_at(event, arguments, sys._getframe(1))
        except (
            ValueError,
            AttributeError,
            TypeError,
        ):  # an argument of an unusual kind, or no frame: no file of ours
            return
        finally:
            self._looking.discard(thread)

    def _look_at(
        self, event: str, arguments: tuple[Any, ...], caller: FrameType
    ) -> None:
        if event == "open":
            self._opened(arguments[0], caller)
        elif event == "object.__getattr__":
            self._read_attribute(arguments[0], arguments[1], caller)
        elif event in _LISTINGS:
            folder = os.path.realpath(os.fsdecode(arguments[0] or "."))
            if folder in self._folders and caller.f_code.co_filename != _IMPORTLIB:
                self.doubts.add("coverage.listed")
        elif event == "cpython.PyInterpreterState_New":
            self.doubts.add("coverage.interpreter")
        elif event == "_thread.start_new_thread" and self._tool is None:
            if caller.f_code.co_filename != _THREADING:
                self.doubts.add("coverage.thread")
        elif event in _NEW_PROCESSES:
            self.began_processes = True

    def _opened(self, path: Any, caller: FrameType) -> None:
        if not isinstance(path, (str, bytes)):
            return
        index = self._place(os.fsdecode(path))[0]
        if index is None:
            return
        if _imports(caller):
            self._report(index, LOADED)
        else:
            self.read_files.add(index)

    def _read_attribute(self, owner: Any, name: str, caller: FrameType) -> None:
        if name != "__code__" or type(owner) is not FunctionType:
            return
        asking = caller.f_code
        # The flags of a code object tell whether it is a generator, not what it does.
        if (
            asking.co_filename.startswith(_PACKAGE)
            or asking.co_name == "_has_code_flag"
        ):
            return
        code = owner.__code__
        index = self._place(code.co_filename)[0]
        if index is not None:
            self.read_code.add(ReadCode(index, code.co_firstlineno, _last_line(code)))


def _imports(frame: FrameType | None) -> bool:
    """Whether a file is opened only to be compiled by an import."""
    while frame is not None and frame.f_code.co_filename == _IMPORTLIB:
        if frame.f_code.co_name == "get_code":
            return True
        frame = frame.f_back
    return False


def _origins() -> set[str]:
    """The real paths of the files that modules came from."""
    return {os.path.realpath(file) for _, file in module_files()}


def _names_in(code: CodeType) -> Iterator[str]:
    """The names of attributes and globals in a function and those inside it, and its
    words, by which getattr may find one.
    """
    yield from code.co_names
    yield from code.co_freevars
    yield from code.co_cellvars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            yield constant


def _last_line(code: CodeType) -> int:
    last = code.co_firstlineno
    for _, _, line in code.co_lines():
        last = max(last, line or 0)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            last = max(last, _last_line(constant))
    return last
