"""Load the workload that a project names, with an error for every possible mistake in its file, and describe its inputs."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

from perfgate.document.message import Message, WorkloadError
from perfgate.measuring.workload.workload import SLA, Traffic, Workload

MODULE_NAME = "perfgate_workload"


class _SourceLoader(SourceFileLoader):
    """Compiles a source file and never looks for bytecode, which any process that can write there could have planted."""

    def path_stats(self, path: str) -> NoReturn:
        # importlib then neither reads nor writes bytecode (importlib.abc.SourceLoader.get_code).
        raise OSError(f"no bytecode is used of {path}")


def never_from_bytecode(folders: list[Path]) -> None:
    """Import modules below these folders from source; packages of an environment inside them as usual."""
    tops = [folder.resolve() for folder in folders]
    kinds: list[Any] = [
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (_SourceLoader, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    ]

    def find(path: str) -> FileFinder:
        resolved = Path(path).resolve()
        if "site-packages" in resolved.parts or not any(
            top in (resolved, *resolved.parents) for top in tops
        ):
            raise ImportError(f"{path} is no folder of the project")
        return FileFinder(path, *kinds)

    sys.path_hooks.insert(0, find)
    beginnings = tuple(map(str, tops))
    for path in list(sys.path_importer_cache):
        if path.startswith(beginnings):
            del sys.path_importer_cache[path]


def load_workload(
    file: Path, attribute: str, *, root: Path, python_path: list[str]
) -> Workload:
    """Import ``file`` with the project's folders in front of the import path and return its workload.

    The workload file's folder comes last of all: its other modules can be imported too, and hide no module.
    Raises WorkloadError if the file or the name is missing or is not a Workload; exceptions of the file itself pass through
    with their traceback.
    """
    shown = file.relative_to(root) if root in file.parents else file
    if file.is_dir():
        raise WorkloadError(Message("workload.folder", {"file": str(shown)}))
    if not file.is_file():
        raise WorkloadError(_missing_file(shown, root))
    folders = [
        str((root / folder).resolve())
        for folder in python_path
        if (root / folder).is_dir()
    ]
    if file.suffix not in SOURCE_SUFFIXES:
        raise WorkloadError(Message("workload.not-python", {"file": str(shown)}))
    never_from_bytecode([root, file.parent])
    sys.path[:0] = folders
    sys.path.append(str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(
        MODULE_NAME, file, loader=_SourceLoader(MODULE_NAME, str(file))
    )
    assert spec is not None
    assert spec.loader is not None, "a loader was given"
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    return _pick(vars(module), attribute, shown)


def _missing_file(file: Path, root: Path) -> Message:
    """With a suggestion, if the project has a file of a similar name."""
    # Of equal names the file at the root counts.
    paths = [*root.glob("*/*.py"), *root.glob("*.py")]
    files = {path.stem: path.relative_to(root) for path in paths}
    close = difflib.get_close_matches(file.stem, files, n=1)
    if close:
        return Message(
            "workload.similar-file",
            {"file": str(file), "similar": str(files[close[0]])},
        )
    return Message("workload.missing-file", {"file": str(file)})


def _pick(names: Mapping[str, Any], attribute: str, file: Path) -> Workload:
    if attribute not in names:
        workloads = [
            name for name, value in names.items() if isinstance(value, Workload)
        ]
        close = difflib.get_close_matches(attribute, workloads, n=1)
        values = {
            "file": str(file),
            "name": repr(attribute),
            "names": ", ".join(workloads) or "–",
        }
        if close:
            raise WorkloadError(
                Message("workload.similar-name", {**values, "similar": repr(close[0])})
            )
        raise WorkloadError(Message("workload.missing-name", values))
    workload = names[attribute]
    if not isinstance(workload, Workload):
        values = {
            "name": repr(attribute),
            "attribute": attribute,
            "file": str(file),
            "kind": type(workload).__name__,
        }
        raise WorkloadError(Message("workload.not-a-workload", values))
    _check_fields(workload, attribute, file)
    return workload


def _check_fields(workload: Workload, attribute: str, file: Path) -> None:
    where = Message("workload.file", {"name": repr(attribute), "file": str(file)})
    for name in ("build", "inputs"):
        if not callable(getattr(workload, name)):
            raise _refused(
                "workload.function",
                where,
                field=name,
                kind=type(getattr(workload, name)).__name__,
            )
    for name in ("call", "train_step", "preprocess_on_device", "check", "reference"):
        value = getattr(workload, name)
        if value is not None and not callable(value):
            raise _refused(
                "workload.optional-function",
                where,
                field=name,
                kind=type(value).__name__,
            )
    preprocess = workload.preprocess
    if preprocess is not None and not _can_run(preprocess):
        raise _refused("workload.preprocess", where, value=repr(preprocess))
    if not isinstance(workload.grad, bool):
        raise _refused("workload.grad", where, value=repr(workload.grad))
    if not _is_count(workload.batch):
        raise _refused("workload.batch", where, value=repr(workload.batch))
    sizes = workload.batch_sizes
    if not isinstance(sizes, Sequence) or not all(map(_is_count, sizes)):
        raise _refused("workload.batch-sizes", where, value=repr(sizes))
    if workload.ranks != 0 and not _is_count(workload.ranks):
        raise _refused("workload.ranks", where, value=repr(workload.ranks))
    _check_promises(workload, where)
    _check_shapes(workload.shapes, where)


def _can_run(preprocess: object) -> bool:
    if not isinstance(preprocess, Mapping):
        return callable(preprocess)
    return bool(preprocess) and all(callable(stage) for stage in preprocess.values())


def _refused(code: str, where: Message, **values: str | Message) -> WorkloadError:
    return WorkloadError(Message(code, {"where": where, **values}))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check_promises(workload: Workload, where: Message) -> None:
    if not isinstance(workload.sla, SLA):
        raise _refused("workload.sla", where, value=repr(workload.sla))
    if workload.sla.p99 is not None and not _above_zero(workload.sla.p99):
        raise _refused("workload.sla-p99", where, value=repr(workload.sla.p99))
    if workload.sla.rate is not None and not _above_zero(workload.sla.rate):
        raise _refused("workload.sla-rate", where, value=repr(workload.sla.rate))
    traffic = workload.traffic
    if traffic is None:
        return
    remedy = Message("workload.traffic-remedy")
    if not isinstance(traffic, Traffic):
        raise _refused("workload.traffic", where, value=repr(traffic), remedy=remedy)
    if (traffic.rate is None) == (not len(traffic.arrivals)):
        raise _refused("workload.traffic-rate", where, remedy=remedy)
    if not _above_zero(traffic.burstiness) or (
        traffic.rate is not None and not _above_zero(traffic.rate)
    ):
        raise _refused(
            "workload.traffic-zero", where, value=repr(traffic), remedy=remedy
        )
    if traffic.max_wait is not None and not (
        _is_number(traffic.max_wait) and traffic.max_wait >= 0
    ):
        raise _refused("workload.max-wait", where, value=repr(traffic.max_wait))
    times = list(traffic.arrivals)
    if len(traffic.arrivals) and not (
        all(map(_is_number, times)) and times == sorted(times) and times[0] < times[-1]
    ):
        raise _refused("workload.arrivals", where, remedy=remedy)


def _above_zero(number: object) -> bool:
    return _is_number(number) and number > 0  # type: ignore[operator]


def _is_number(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _check_shapes(shapes: object, where: Message) -> None:
    remedy = Message("workload.shapes-remedy")
    if not isinstance(shapes, Mapping) or not shapes:
        raise _refused("workload.shapes", where, remedy=remedy)
    for name, arguments in shapes.items():
        are_named = isinstance(arguments, Mapping) and all(
            isinstance(argument, str) for argument in arguments
        )
        if not isinstance(name, str) or not are_named:
            raise _refused("workload.shape", where, name=repr(name), remedy=remedy)


FUNCTIONS = (
    "build",
    "inputs",
    "call",
    "train_step",
    "preprocess",
    "preprocess_on_device",
    "check",
    "reference",
)


def describe_shapes(workload: Workload) -> dict[str, str]:
    """Each shape's arguments as text, e.g. ``length=512``."""
    shapes = {}
    for name, arguments in workload.shapes.items():
        shapes[name] = ", ".join(
            f"{argument}={value!r}" for argument, value in sorted(arguments.items())
        )
    return shapes


def describe_functions(workload: Workload) -> dict[str, str]:
    """The given functions, each with a hash of its code: 16 hex digits of SHA-256; and ``grad`` if it is on.

    It covers the function's byte code, constants, names and defaults, so an edited comment keeps it. Callees are not covered.
    Two Python versions give two hashes. Objects without code, such as a class, count by their name.
    """
    hashes = {}
    for name in FUNCTIONS:
        function = getattr(workload, name)
        if function is not None:
            digest = hashlib.sha256()
            for part in _parts(function):
                digest.update(part.encode(errors="replace") + b"\0")
            hashes[name] = digest.hexdigest()[:16]
    if workload.grad:
        hashes["grad"] = "on"
    return hashes


def _parts(function: Any) -> Iterator[str]:
    code = getattr(function, "__code__", None)
    if isinstance(function, Mapping):
        for name, stage in function.items():
            yield name
            yield from _parts(stage)
    elif isinstance(function, CodeType):
        # Neither file name nor line numbers: they differ between two checkouts of the same code.
        yield function.co_code.hex()
        yield repr((function.co_names, function.co_varnames, function.co_freevars))
        # The first constant may be the docstring, which has no effect.
        has_docstring = bool(function.co_consts) and isinstance(
            function.co_consts[0], str
        )
        for constant in function.co_consts[has_docstring:]:
            if isinstance(constant, CodeType):
                yield from _parts(constant)
            else:
                yield _stable(constant)
    elif isinstance(code, CodeType):
        yield from _parts(code)
        yield from map(_stable, getattr(function, "__defaults__", None) or ())
        yield from map(
            _stable, (getattr(function, "__kwdefaults__", None) or {}).items()
        )
    else:
        kind = type(function)
        yield f"{getattr(function, '__module__', kind.__module__)}.{getattr(function, '__qualname__', kind.__qualname__)}"


def _stable(value: object) -> str:
    kind = type(value).__name__
    if isinstance(value, (frozenset, set)):
        return f"{kind}{sorted(map(_stable, value))}"
    if isinstance(value, (tuple, list)):
        return f"{kind}{[_stable(member) for member in value]}"
    if isinstance(value, Mapping):
        return f"{kind}{sorted((_stable(k), _stable(v)) for k, v in value.items())}"
    if isinstance(value, (str, bytes, int, float, complex, type(None), type(...))):
        return repr(value)
    return kind
