"""The lines of the project that a call runs through."""

from __future__ import annotations

from pathlib import Path
from types import FrameType

from perfgate.system.package import PACKAGE

_PACKAGE = str(PACKAGE)


class SourceLines:
    """Find the innermost line of the project on the Python stack.

    The project is what lies below ``root`` and belongs neither to an installed package nor to perfgate itself. An
    operator of the backward pass has no line of its own: it is charged to the line that started the pass.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._files: dict[str, str | None] = {}

    def of(self, frame: FrameType | None) -> str | None:
        """``file:line`` relative to the root, None where no frame is the project's."""
        while frame is not None:
            line = self.at(frame.f_code.co_filename, frame.f_lineno)
            if line is not None:
                return line
            frame = frame.f_back
        return None

    def at(self, name: str, number: int | None) -> str | None:
        """``file:line`` of a line of a file, None where the file is not the project's."""
        if name not in self._files:
            self._files[name] = self._relative(name)
        file = self._files[name]
        return None if file is None else f"{file}:{number}"

    def _relative(self, name: str) -> str | None:
        if name.startswith("<"):
            return None
        path = Path(name).resolve()
        installed = {"site-packages", "dist-packages"} & set(path.parts)
        if installed or _PACKAGE in map(str, path.parents) or self._root not in path.parents:
            return None
        return path.relative_to(self._root).as_posix()
