"""A terminal in which a journey types: it keeps the folder and what is exported, and a transcript for the failure message."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.journeys.installation import Installation
from tests.waiting import wait_until

# Only a command that hangs takes as long.
SECONDS = 1800


@dataclass(frozen=True)
class Screen:
    """What a command showed: its exit code, and its output and errors in the order in which they were printed."""

    code: int
    text: str
    transcript: list[str]

    def shows(self, *texts: str) -> None:
        """Fail unless every text is on the screen; a line may break at any space."""
        lacking = [text for text in texts if text not in self.in_one_line]
        assert not lacking, f"the last command does not show {lacking}\n{self._typed()}"

    def hides(self, *texts: str) -> None:
        """Fail if one of the texts is on the screen."""
        shown = [text for text in texts if text in self.in_one_line]
        assert not shown, f"the last command shows {shown}\n{self._typed()}"

    def ended(self, *codes: int) -> None:
        """Fail unless the exit code is one of these."""
        assert self.code in codes, f"the last command ended with {self.code}, not {codes}\n{self._typed()}"

    @property
    def in_one_line(self) -> str:
        """The text without the line breaks of the terminal's width."""
        return " ".join(self.text.split())

    def _typed(self) -> str:
        return "\n".join(self.transcript)


@dataclass
class Shell:
    """Types commands into bash, in a clean environment. ``home`` is the user's, ``folder`` where the shell stands."""

    home: Path
    folder: Path
    environment: dict[str, str]
    transcript: list[str] = field(default_factory=list)

    def types(self, line: str, *, ends: int | tuple[int, ...] = 0) -> Screen:
        """Run a line to its end, in the foreground; fail with the whole transcript unless it ends with one of these codes."""
        after = self.home / ".after"
        # The folder and the exported variables after the line are those of the next one.
        script = f"trap {shlex.quote(f'env -0 >{shlex.quote(str(after))}')} EXIT\n{line}\n"
        after.unlink(missing_ok=True)
        process = self._start(["bash", "-c", script], subprocess.PIPE)
        try:
            output, _ = process.communicate(timeout=SECONDS)
        finally:
            _end(process)
        self.transcript += [f"$ {line}", output.rstrip("\n"), f"[{process.returncode}]"]
        self._take_over(after)
        screen = Screen(process.returncode, output, self.transcript)
        screen.ended(*((ends,) if isinstance(ends, int) else ends))
        return screen

    @contextmanager
    def starts(self, line: str, *, until: str) -> Iterator[Path]:
        """Run a line in the background once it has printed ``until``; yields the file with its output. Ctrl-C ends it."""
        log = self.home / f"background-{len(self.transcript)}.log"
        with log.open("w") as file:
            process = self._start(["bash", "-c", f"exec {line}"], file.fileno())
        self.transcript.append(f"$ {line} &")
        try:
            wait_until(lambda: until in log.read_text() or process.poll() is not None, seconds=SECONDS)
            self.transcript.append(log.read_text())
            assert until in log.read_text(), f"the last command never printed {until!r}\n" + "\n".join(self.transcript)
            yield log
        finally:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)
            _end(process)

    def writes(self, name: str, text: str) -> None:
        """Write a file in an editor."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.transcript.append(f"# writes {name}")

    def edits(self, name: str, old: str, new: str) -> None:
        """Replace a passage of a file, which must be there exactly once."""
        text = self.reads(name)
        assert text.count(old) == 1, f"{name} holds {old!r} {text.count(old)} times:\n{text}"
        (self.folder / name).write_text(text.replace(old, new))
        self.transcript.append(f"# edits {name}: {old!r} -> {new!r}")

    def reads(self, name: str) -> str:
        """Open a file, below the folder where the shell stands."""
        return (self.folder / name).read_text()

    def opens_another(self, folder: Path, **environment: str) -> Shell:
        """Open a second terminal of the same user in a folder, e.g. that of a runner, with variables of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        return Shell(self.home, folder, {**self.environment, **environment}, self.transcript)

    def _start(self, command: list[str], output: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def _take_over(self, after: Path) -> None:
        entries = after.read_text().split("\0")
        self.environment = dict(entry.split("=", 1) for entry in entries if "=" in entry)
        self.folder = Path(self.environment["PWD"])


def open_shell(installation: Installation, folder: Path) -> Shell:
    """Open the first terminal of a new user, in a new home outside the checkout."""
    home, temporary, work = folder / "home", folder / "tmp", folder / "work"
    for made in (home, temporary, work):
        made.mkdir()
    return Shell(home, work, _clean_environment(installation, home, temporary, os.environ))


def _clean_environment(
    installation: Installation, home: Path, temporary: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """No variable of perfgate, git, Python or a CI host; programs of the system, after those of the installation."""
    of_the_tests = str(Path(sys.executable).parent)
    system = [entry for entry in environ["PATH"].split(os.pathsep) if entry != of_the_tests]
    return {
        **{name: environ[name] for name in ("LD_LIBRARY_PATH",) if name in environ},
        "PATH": os.pathsep.join([str(installation.programs), *system]),
        "VIRTUAL_ENV": str(installation.folder),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "USER": "someone",
        "LANG": "C.UTF-8",
        # What README calls the path of a wheel; the journey types `pip install "$PERFGATE"`.
        "PERFGATE": str(installation.wheel),
        "PWD": str(temporary.parent / "work"),
    }


def _end(process: subprocess.Popen[str]) -> None:
    """End what the command has left running."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
