"""The environments of a bisection, made by the project's own setup with some packages
in other versions.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from perfgate.conductor.workers.interpreters import RUNNING
from perfgate.conductor.workers.virtualenv import (
    SetupPlan,
    cache_folder,
    provide_virtualenv,
    read_requirements,
    setup_environment,
)
from perfgate.conductor.workers.worker import Say
from perfgate.config import Config
from perfgate.errors import MeasuringError, StackError, UsageError
from perfgate.flows.bisect.request import ReleaseRange
from perfgate.locale import sentence

# Prints the versions of the distributions named as arguments, null for one that is not
# installed.
_VERSIONS = """
import importlib.metadata, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""
# pip's errors if an index does not respond or is refused (pip 23.2 and 26.3, tried with
# dead addresses).
_UNREACHABLE = re.compile(
    r"connection broken by|Max retries exceeded|Could not fetch URL|is not a trusted or secure host and is being ignored"
)
_AVAILABLE = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
_INDEX_SECONDS = 300.0
# Shell lines that make an environment may load modules from a slow disk first.
_START_SECONDS = 300.0
_SHOWN = 8


@dataclass(frozen=True)
class StackMaker:
    """Makes environments of the project in ``checkout``; they are cached and reused, as
    in a check.
    """

    config: Config
    checkout: Path
    logs: Path
    say: Say
    environ: Mapping[str, str]

    def old(self) -> Path:
        """The interpreter of the old stack: perfgate's own, or the result of
        ``[measure] setup``.
        """
        if self.config.measure.setup:
            return self._build([], "old-stack")
        return RUNNING

    def make(self, pins: Mapping[str, str | None], name: str) -> Path:
        """The interpreter of a stack with these versions; None is a package that must
        be absent.

        Raises StackError if it cannot be made so, and MeasuringError if the package
        index cannot be reached.
        """
        requirements = [
            f"{package}=={version}" for package, version in pins.items() if version
        ]
        python = self._build(requirements, name)
        installed = versions_in(python, pins)
        for package, version in pins.items():
            found = installed[package]
            if _equal(found, version):
                continue
            if found is None:
                raise StackError(
                    "the others need {package} absent instead of {wanted}",
                    package=package,
                    wanted=version,
                )
            if version is None:
                raise StackError(
                    "the others need {package} {found} instead of none",
                    package=package,
                    found=found,
                )
            raise StackError(
                "the others need {package} {found} instead of {wanted}",
                package=package,
                found=found,
                wanted=version,
            )
        return python

    def releases(self, python: Path, span: ReleaseRange) -> list[str]:
        """The releases from the first to the last version, ascending, as the package
        index lists them for this Python.
        """
        command = [str(python), "-m", "pip", "index", "versions", span.package]
        if Version(span.first).is_prerelease or Version(span.last).is_prerelease:
            command.append("--pre")
        self.say(
            sentence(
                "querying the package index for releases of {package}",
                package=span.package,
            )
        )
        try:
            process = subprocess.run(
                command,
                env=setup_environment(self.environ, self.config.measure.pass_env),
                cwd=self.checkout,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_INDEX_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _unreachable() from error
        _refuse_unreachable(process.stderr)
        listed = _AVAILABLE.search(process.stdout)
        if process.returncode or listed is None:
            raise UsageError(
                "the package index lists no release of {package}: {printed}",
                package=span.package,
                printed=_last_words(process.stderr),
            )
        return releases_between(listed[1].split(", "), span)

    def _build(self, requirements: Sequence[str], name: str) -> Path:
        settings = self.config.measure
        install = ""
        if requirements:
            install = f"python -m pip install {shlex.join(requirements)}"
        plan = SetupPlan(
            side=name.replace("-", " "),
            command=" && ".join(filter(None, [settings.setup, install])),
            checkout=self.checkout,
            requirements=read_requirements(self.checkout, settings.requirements),
            inherit=settings.inherit_packages,
            timeout=settings.setup_timeout,
            pass_env=settings.pass_env,
        )
        log = self.logs / f"{name}.log"
        try:
            return provide_virtualenv(
                plan,
                cache=cache_folder(self.environ),
                environ=self.environ,
                log=log,
                say=self.say,
            ).python
        except MeasuringError as error:
            text = ""
            if log.exists():
                text = log.read_text(encoding="utf-8", errors="replace")
            _refuse_unreachable(text)
            raise StackError("{error}", error=_last_words(text) or error) from error


def versions_in(python: Path, packages: Iterable[str]) -> dict[str, str | None]:
    """The installed versions of packages in the environment of an interpreter."""
    environment = dict(os.environ)
    for variable in ("PYTHONPATH", "PYTHONHOME"):
        environment.pop(variable, None)
    try:
        process = subprocess.run(
            [str(python), "-c", _VERSIONS, *packages],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_START_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasuringError(
            "{python} did not start within {seconds:.0f} s",
            python=python,
            seconds=_START_SECONDS,
        ) from error
    last_line = process.stdout.strip().rpartition("\n")[2]
    try:
        if process.returncode:
            raise ValueError
        return msgspec.json.decode(last_line, type=dict[str, str | None])
    except ValueError:
        raise MeasuringError(
            "{python} did not list its packages: {printed}",
            python=python,
            printed=_last_words(process.stderr) or last_line,
        ) from None


def releases_between(listed: Iterable[str], span: ReleaseRange) -> list[str]:
    """The listed releases from the first to the last version, ascending. Raises
    UsageError if one of these is missing.
    """
    versions: dict[Version, str] = {}
    for text in listed:
        with suppress(InvalidVersion):
            versions[Version(text)] = text
    first, last = Version(span.first), Version(span.last)
    if missing := [
        str(version) for version in (first, last) if version not in versions
    ]:
        latest = ", ".join(
            versions[version] for version in sorted(versions, reverse=True)[:_SHOWN]
        )
        raise UsageError(
            "the package index has no {package} {missing} for this Python; it has {latest} …",
            package=span.package,
            missing=", ".join(missing),
            latest=latest,
        )
    return [
        versions[version] for version in sorted(versions) if first <= version <= last
    ]


def _equal(version: str | None, pin: str | None) -> bool:
    if version is None or pin is None:
        return version == pin
    # "2.13" matches 2.13.0 and 2.13.0+cpu: without a local version in the request, any
    # matches (PEP 440, "Version matching").
    have, want = Version(version), Version(pin)
    return have == want or (want.local is None and Version(have.public) == want)


def _refuse_unreachable(output: str) -> None:
    if _UNREACHABLE.search(output):
        raise _unreachable()


def _unreachable() -> MeasuringError:
    return MeasuringError(
        "pip cannot reach the package index, so the environments cannot be made; check the network, PIP_INDEX_URL and the "
        "proxy, or name a folder of wheels by PIP_FIND_LINKS with PIP_NO_INDEX=1"
    )


def _last_words(output: str) -> str:
    """The last error of pip, or the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [""])[-1].removeprefix("ERROR:").strip()
