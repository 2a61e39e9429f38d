"""Choose each side's environment: a shared one, or one per side if base and head need different packages."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from perfgate.conductor.workers.environment import in_ci, worker_environment
from perfgate.conductor.workers.interpreters import (
    RUNNING,
    ask_about,
    check_interpreter,
    is_running,
    share_code,
    with_code,
)
from perfgate.conductor.workers.seals import SealedFolder, Seals
from perfgate.conductor.workers.virtualenv import (
    SetupPlan,
    cache_folder,
    differing_files,
    provide_virtualenv,
    read_requirements,
)
from perfgate.conductor.workers.worker import Say
from perfgate.config import MeasureSettings
from perfgate.document.message import Message
from perfgate.document.run import Side
from perfgate.document.testbed import Environment
from perfgate.flows.shared.options import GivenInterpreters
from perfgate.locale import sentence

_SIDES: tuple[Side, Side] = ("base", "head")
REUSED = Message("notes.reused-environment")
_NAMED_FILES = 3


class SideCode(NamedTuple):
    """One side's checkout, and the setup command of its own perfgate.toml."""

    root: Path
    setup: str


class SideEnvironment(NamedTuple):
    """One side's interpreter (None: the one running perfgate), with the record and notes for its run document."""

    python: Path | None = None
    record: Environment | None = None
    notes: tuple[Message, ...] = ()


class Environments(NamedTuple):
    """Both sides' environments, and the notes that concern both."""

    base: SideEnvironment = SideEnvironment()
    head: SideEnvironment = SideEnvironment()
    notes: tuple[Message, ...] = ()


class _Choice(NamedTuple):
    kind: Literal["running", "built", "given"]
    python: Path | None
    remedy: str
    notes: tuple[Message, ...] = ()


def choose_environments(
    base: SideCode,
    head: SideCode,
    interpreters: GivenInterpreters,
    settings: MeasureSettings,
    *,
    seals: Seals,
    code_of: Callable[[Path | None], list[SealedFolder]],
    out: Path,
    environ: Mapping[str, str] = os.environ,
    say: Say,
) -> Environments:
    """Choose the environments to measure in, and build them with ``[measure] setup`` if needed.

    Interpreters named on the command line come first. Otherwise the dependency files of both sides are compared; if they are
    equal, or there is no setup command, both sides share the running interpreter. ``code_of`` lists the code that an
    interpreter imports, which is added to ``seals``. Raises MeasuringError if the setup fails, and ConfigError or UsageError
    if no worker can run in an interpreter.
    """
    needs = [read_requirements(side.root, settings.requirements) for side in (base, head)]
    differing = differing_files(*needs)
    if interpreters.base or interpreters.head:
        choices = [_given(interpreters.base, "--base-python"), _given(interpreters.head, "--head-python")]
        if all(choice.python is None for choice in choices):
            return Environments()
        for side, choice in zip(_SIDES, choices):
            seals.add(code_of(choice.python), side)
    elif head.setup and (differing or base.setup not in ("", head.setup)):
        choices = []
        for side, code, need in zip(_SIDES, (base, head), needs):
            # The head's setup command is code of the head, so base's imports are sealed before it runs.
            seals.begin(side)
            choice = _built(side, code, code.setup or head.setup, need, settings, out, environ, say)
            seals.add(code_of(choice.python), side)
            choices.append(choice)
    else:
        return Environments(notes=(_ran_with_what_is_installed(differing),) if differing else ())
    say(sentence("comparing the packages of base and head"))
    sides = [
        SideEnvironment(choice.python, _describe(choice, need, settings, environ), choice.notes)
        for choice, need in zip(choices, needs)
    ]
    return Environments(base=sides[0], head=sides[1])


def _given(python: Path | None, option: str) -> _Choice:
    if python is None or is_running(python):
        return _Choice("running", None, "reinstall perfgate")
    interpreter = check_interpreter(python, option)
    return _Choice("given", interpreter, f"install torch and this same perfgate there, with {interpreter} -m pip")


def _built(
    side: str,
    code: SideCode,
    setup: str,
    requirements: Mapping[str, str],
    settings: MeasureSettings,
    out: Path,
    environ: Mapping[str, str],
    say: Say,
) -> _Choice:
    plan = SetupPlan(
        side=side,
        command=setup,
        checkout=code.root,
        requirements=requirements,
        inherit=settings.inherit_packages,
        timeout=settings.setup_timeout,
        pass_env=settings.pass_env,
    )
    log = out / side / "setup.log"
    provided = provide_virtualenv(plan, cache=cache_folder(environ), environ=environ, log=log, say=say)
    own = "have [measure] setup install perfgate and torch too, or leave inherit_packages true"
    remedy = "check what [measure] setup installs" if settings.inherit_packages else own
    # On a developer's machine, keeping the environment fresh is up to the developer.
    notes = (REUSED, *provided.notes) if provided.reused and in_ci(environ) else provided.notes
    return _Choice("built", provided.python, remedy, notes)


def _describe(
    choice: _Choice, requirements: dict[str, str], settings: MeasureSettings, environ: Mapping[str, str]
) -> Environment:
    with tempfile.TemporaryDirectory(prefix="perfgate-about-") as folder:
        scratch = Path(folder)
        # Listing packages needs no accelerator: torch_npu must not be imported for it.
        environment = worker_environment(
            environ, device="cpu", scratch=scratch, threads=1, hash_seed=0, pass_env=list(settings.pass_env)
        )
        environment = with_code(environment, share_code(scratch / "code"))
        about = ask_about(choice.python or RUNNING, environment, cwd=scratch, remedy=choice.remedy)
    return msgspec.structs.replace(about, kind=choice.kind, requirements=requirements)


def _ran_with_what_is_installed(differing: list[str]) -> Message:
    more = len(differing) - _NAMED_FILES
    names = differing[:_NAMED_FILES]
    listed = Message("publish.files-and-more", {"files": names, "more": more}) if more > 0 else names
    return Message("notes.one-environment", {"count": len(differing), "names": listed})
