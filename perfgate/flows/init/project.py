"""What a project says of itself, in any of the files that Python projects use.

These are its name, the import name of its package, the Python that it needs, and the
dependencies that it declares.
"""

from __future__ import annotations

import codecs
import importlib.metadata
import re
import sys
from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from perfgate.errors import UsageError
from perfgate.flows.init.installed import project_distribution
from perfgate.flows.init.uv import names_requirements
from perfgate.toml import tomllib

PYPROJECT, SETUP_PY, SETUP_CFG = "pyproject.toml", "setup.py", "setup.cfg"
_ENVIRONMENTS = ("environment.yml", "environment.yaml")
# Requirement files for developing the project, by a word in their name.
_NOT_RUN_WITH = re.compile(
    r"(?:^|[-_.])(?:dev|develop|tests?|docs?|lint|ci|build|examples?)(?:[-_.]|$)"
)
# Packages that conda names differently from the package index.
_CONDA_NAMES = {"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch"}
_CONDA_TOOLS = ("python", "pip")
_INDEX_OPTION = re.compile(r"(?:-i|-f|--index-url|--extra-index-url|--find-links)\b.*")


@dataclass(frozen=True)
class Declared:
    """``files`` have requirements that only a build backend knows, ``indexes`` the pip
    options for indexes.

    ``conda`` are conda packages that may or may not exist on an index.
    """

    requirements: Sequence[str]
    files: Sequence[Path]
    indexes: Sequence[str]
    conda: Sequence[str]


def read_declared(folder: Path) -> Declared:
    """Read the dependencies from the files of ``folder``.

    Raises UsageError for an unreadable one.

    Requirement files count only if the project's metadata name no dependency: otherwise
    they may be for its developers.
    """
    lines: list[str] = []
    # Without requirements.txt the files with similar names, if not for development.
    usual = folder / "requirements.txt"
    paths = sorted(
        [*folder.glob("requirements*.txt"), *folder.glob("requirements/*.txt")]
    )
    if usual.is_file():
        paths = [usual]
    for path in paths:
        if path == usual or not _NOT_RUN_WITH.search(path.stem):
            lines += _requirement_lines(path)
    listed, options = _split(lines)
    needed, files = _own_dependencies(folder), list[Path]()
    _refuse_elsewhere(needed or (), folder)
    if needed is None:
        needed = []
        built = folder / SETUP_PY
        if not built.is_file():
            built = folder / PYPROJECT
        if not listed or names_requirements(built):
            files.append(built)
    if not needed and not files:
        needed = listed
    conda, pip_lines = _read_environment(folder)
    listed_for_pip, pip_options = _split(pip_lines)
    options += pip_options
    for index in read_pyproject(folder).tool.uv.index:
        if index.url is not None:
            options.append(f"--extra-index-url {index.url}")
    return Declared(
        requirements=[
            text for text in (*needed, *listed_for_pip) if _name(text) != "perfgate"
        ],
        files=files,
        indexes=list(dict.fromkeys(options)),
        conda=conda,
    )


def _split(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """The requirements among the lines, and the options."""
    requirements: list[str] = []
    options: list[str] = []
    for line in lines:
        if line.startswith("-"):
            options.append(line)
        else:
            requirements.append(line)
    return requirements, options


class ProjectTable(msgspec.Struct, frozen=True, rename="kebab"):
    """``[project]`` of a pyproject.toml."""

    name: str = ""
    requires_python: str = ""
    dependencies: list[str] = []
    dynamic: list[str] = []


class DependencySource(msgspec.Struct, frozen=True):
    """Where a dependency comes from instead of a package index: an entry of Poetry's
    dependencies or of uv's sources.
    """

    git: str | None = None
    url: str | None = None
    path: str | None = None
    workspace: bool = False
    optional: bool = False
    extras: list[str] = []

    @property
    def is_elsewhere(self) -> bool:
        return bool(self.git or self.url or self.path or self.workspace)


class PoetryTable(msgspec.Struct, frozen=True):
    """``[tool.poetry]``."""

    name: str = ""
    # A dependency is a version, a table, or a list of tables for several platforms.
    dependencies: (
        dict[str, str | DependencySource | list[str | DependencySource]] | None
    ) = None


class UvIndex(msgspec.Struct, frozen=True):
    """An entry of ``[[tool.uv.index]]``."""

    url: str | None = None


class UvTable(msgspec.Struct, frozen=True):
    """``[tool.uv]``."""

    index: list[UvIndex] = []
    sources: dict[str, DependencySource | list[DependencySource]] = {}
    workspace: Any = None


class ToolTables(msgspec.Struct, frozen=True):
    """``[tool]``."""

    poetry: PoetryTable = PoetryTable()
    uv: UvTable = UvTable()


class PyProject(msgspec.Struct, frozen=True, rename="kebab"):
    """The tables of a pyproject.toml that tell what the project needs."""

    project: ProjectTable | None = None
    tool: ToolTables = ToolTables()
    build_system: Any = None


def read_pyproject(folder: Path) -> PyProject:
    """Empty if the file does not exist. Raises UsageError if it is unreadable."""
    path = folder / PYPROJECT
    try:
        return msgspec.convert(
            tomllib.loads(path.read_text(encoding="utf-8")), PyProject
        )
    except FileNotFoundError:
        return PyProject()
    except (
        OSError,
        UnicodeDecodeError,
        tomllib.TOMLDecodeError,
        msgspec.ValidationError,
    ) as error:
        raise UsageError(
            "{path} cannot be read: {error}; repair it and run this again",
            path=path,
            error=error,
        ) from error


def read_setup_cfg(folder: Path) -> ConfigParser:
    """The sections of setup.cfg; empty if it does not exist.

    Raises UsageError if it is unreadable.
    """
    parser = ConfigParser(interpolation=None)
    try:
        parser.read(folder / SETUP_CFG, encoding="utf-8")
    except (ConfigParserError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            "{folder} cannot be read: {what}; repair it and run this again",
            folder=folder / SETUP_CFG,
            what=reason,
        ) from error
    return parser


def _own_dependencies(folder: Path) -> Sequence[str] | None:
    """The dependencies in the project's metadata; None if only its build backend knows
    them.
    """
    file = read_pyproject(folder)
    table, poetry = file.project, file.tool.poetry
    if poetry.dependencies is not None:
        needed = [] if table is None else list(table.dependencies)
        for name, value in poetry.dependencies.items():
            entries = _sources(value)
            is_optional = any(entry.optional for entry in entries)
            if name != "python" and not is_optional:
                extras = sorted({extra for entry in entries for extra in entry.extras})
                needed.append(f"{name}[{','.join(extras)}]" if extras else name)
        return needed
    if table is not None and "dependencies" not in table.dynamic:
        return table.dependencies
    if (
        table is None
        and not (folder / SETUP_PY).is_file()
        and file.build_system is None
    ):
        lines = (
            read_setup_cfg(folder)
            .get("options", "install_requires", fallback="")
            .splitlines()
        )
        return [line for line in lines if line.strip()]
    installed = project_distribution(folder)
    if installed:
        return installed.requires or []
    return None


def _sources(
    value: str | DependencySource | Sequence[str | DependencySource],
) -> list[DependencySource]:
    entries = [value] if isinstance(value, (str, DependencySource)) else value
    return [entry for entry in entries if isinstance(entry, DependencySource)]


def _refuse_elsewhere(needed: Sequence[str], folder: Path) -> None:
    """Refuse a dependency that comes from no package index and is not installed here: a
    package of an index that has its name is another one.
    """
    elsewhere: set[str] = set()
    for table in _tool_tables(folder):
        named = {**(table.poetry.dependencies or {}), **table.uv.sources}
        for name, value in named.items():
            if any(source.is_elsewhere for source in _sources(value)):
                elsewhere.add(canonicalize_name(name))
    for text in needed:
        name = _name(text)
        if name in elsewhere and not _is_installed(name):
            raise UsageError(
                "{path} takes {name} from a folder, a repository or an address, and it is not installed here; install the "
                "project here, or give CI's install command with --setup",
                path=folder / PYPROJECT,
                name=name,
            )


def _tool_tables(folder: Path) -> Iterator[ToolTables]:
    """The tables of the project, and of the uv workspace around it in its repository,
    whose sources its members share.
    """
    yield read_pyproject(folder).tool
    for above in (folder.resolve(), *folder.resolve().parents):
        tables = read_pyproject(above).tool
        if tables.uv.workspace is not None:
            yield tables
        if tables.uv.workspace is not None or (above / ".git").exists():
            return


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _requirement_lines(path: Path, *above: Path) -> Iterator[str]:
    """The requirements of a file and of the files it includes with -r, and its options
    for indexes.

    ``above`` are the files that include it: one that includes itself is not read again.
    """
    path = path.resolve()
    if not path.is_file() or path in above:
        return
    for line in _text_of(path).replace("\\\n", " ").splitlines():
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if include := re.match(r"(?:-r|--requirement)[\s=]*(\S+)", text):
            yield from _requirement_lines(path.parent / include[1], path, *above)
        elif editable := re.match(r"(?:-e|--editable)[\s=]*.*#egg=([\w.-]+)", text):
            yield editable[1]
        elif _INDEX_OPTION.match(text):
            yield text
        elif text and not text.startswith(("-", ".", "/")):
            yield re.sub(r"\s--hash[=\s].*", "", text)


def _text_of(path: Path) -> str:
    """The text of a requirements file, which PowerShell writes in UTF-16, as pip reads
    it.
    """
    data = path.read_bytes()
    is_utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = data.decode("utf-16" if is_utf16 else "utf-8-sig", errors="replace")
    return "\n".join(text.splitlines())


def _read_environment(folder: Path) -> tuple[list[str], list[str]]:
    """The conda packages and the pip lines of an environment.yml."""
    conda: list[str] = []
    pip: list[str] = []
    for name in _ENVIRONMENTS:
        path = folder / name
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        block = re.search(
            r"^dependencies:[^\S\n]*(\S.*)?\n((?:[ \t-].*\n|\s*\n|#.*\n)*)",
            f"{text}\n",
            re.MULTILINE,
        )
        if block is None or (block[1] and not block[1].startswith("#")):
            raise UsageError(
                "{path}: `dependencies:` must be followed by lines of `- NAME`; name CI's own line with --setup",
                path=path,
            )
        pip_indent = None
        for line in block[2].splitlines():
            entry = re.match(r"(\s*)-\s+(.+?)\s*(?:\s#.*)?$", line)
            if entry is None:
                continue
            value, indent = entry[2].strip("'\""), len(entry[1])
            if value == "pip:":
                pip_indent = indent
            elif pip_indent is not None and indent > pip_indent:
                if _INDEX_OPTION.match(value) or not value.startswith(("-", ".")):
                    pip.append(value)
            else:
                pip_indent = None
                # E.g. conda-forge::numpy>=1.20 or pytorch=2.5=cpu_py311.
                words = re.split(r"[\s=<>!~\[]", value.rpartition("::")[2], maxsplit=1)
                package = canonicalize_name(words[0])
                if package not in _CONDA_TOOLS:
                    conda.append(_CONDA_NAMES.get(package, package))
    return conda, pip


def _name(text: str) -> str:
    try:
        return canonicalize_name(Requirement(text).name)
    except InvalidRequirement as error:
        raise UsageError(
            "the requirement {text!r} cannot be read; name CI's own line with --setup",
            text=text,
        ) from error


_PYTHONS = [f"3.{minor}" for minor in range(10, 15)]
# Packages next to the project's own that are never measured.
_NOT_THE_PACKAGE = {
    "tests",
    "test",
    "docs",
    "doc",
    "examples",
    "scripts",
    "benchmarks",
    "tools",
    "perf",
}


@dataclass(frozen=True)
class NewProject:
    """``name`` and ``package`` (the import name) may be empty; ``python_path`` is empty
    if the default finds the package.
    """

    name: str
    package: str
    python_path: Sequence[str]
    python: str


def read_project(folder: Path) -> NewProject:
    """Read pyproject.toml and setup.cfg of ``folder``.

    Raises UsageError for an unreadable one.
    """
    file, cfg = read_pyproject(folder), read_setup_cfg(folder)
    table = file.project or ProjectTable()
    name = (
        table.name or file.tool.poetry.name or cfg.get("metadata", "name", fallback="")
    )
    package, parent = _find_package(folder, re.sub(r"[-.]+", "_", name))
    python_path: Sequence[str] = ()
    if parent not in ("", ".", "src"):
        python_path = [".", parent]
    return NewProject(
        name=name,
        package=package,
        python_path=python_path,
        python=_python(
            table.requires_python,
            cfg.get("options", "python_requires", fallback=""),
            folder,
        ),
    )


def _find_package(folder: Path, name: str) -> tuple[str, str]:
    """The import name of the package, and the folder that must be on Python's path for
    it.
    """
    if name:
        subfolders = sorted(
            path.name
            for path in folder.iterdir()
            if path.is_dir() and path.name[0] not in "._"
        )
        for parent in (".", "src", *subfolders):
            if (folder / parent / name / "__init__.py").is_file() or (
                folder / parent / f"{name}.py"
            ).is_file():
                return name, parent
    for parent in ("src", "."):
        packages = {
            path.parent.name for path in (folder / parent).glob("*/__init__.py")
        }
        candidates = packages - _NOT_THE_PACKAGE
        if len(candidates) == 1:
            return candidates.pop(), parent
    return "", ""


def _python(table_says: str, cfg_says: str, folder: Path) -> str:
    """The running Python's version if the project supports it, because the pins are
    from here; else the oldest supported.
    """
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions, path = table_says or cfg_says, folder / PYPROJECT
    if not table_says:
        path = folder / SETUP_CFG
    try:
        takes = SpecifierSet(versions)
    except InvalidSpecifier as error:
        raise UsageError(
            "{path}: the Python that the project requires cannot be read: {error}",
            path=path,
            error=error,
        ) from error
    # Compare the newest patch release of each: ">=3.10.4" accepts a current 3.10.
    for version in (running, *_PYTHONS):
        if takes.contains(f"{version}.99"):
            return version
    raise UsageError(
        "{path}: requires-python = {wanted!r} takes no Python that perfgate runs on (3.10 or later)",
        path=path,
        wanted=versions,
    )
