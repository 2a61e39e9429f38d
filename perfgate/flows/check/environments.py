"""Choose each side's environment: a shared one, or one per side if base and head need
different packages.
"""

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
from perfgate.conductor.workers.seals import SealedCode, Seals
from perfgate.conductor.workers.virtualenv import (
    SetupPlan,
    cache_folder,
    differing_files,
    provide_virtualenv,
    read_requirements,
)
from perfgate.conductor.workers.worker import Say
from perfgate.config import MeasureSettings
from perfgate.document.message import Message, MessageValue
from perfgate.document.run import Side
from perfgate.document.testbed import Environment
from perfgate.locale import Activity, sentence

_SIDES: tuple[Side, Side] = ("base", "head")
REUSED = Message("notes.reused-environment")
_NAMED_FILES = 3


class SideEnvironment(NamedTuple):
    """One side's interpreter (None: perfgate's own), with the record and notes for its
    run document.
    """

    python: Path | None = None
    record: Environment | None = None
    notes: tuple[Message, ...] = ()


class Environments(NamedTuple):
    """Both sides' environments, and the notes that concern both."""

    base: SideEnvironment = SideEnvironment()
    head: SideEnvironment = SideEnvironment()
    notes: tuple[Message, ...] = ()

    def of_side(self, side: Side) -> SideEnvironment:
        if side == "base":
            return self.base
        return self.head


def choose_environments(
    roots: Mapping[Side, Path],
    settings: Mapping[Side, MeasureSettings],
    pythons: Mapping[Side, Path | None],
    *,
    seals: Seals,
    code_of: Callable[[Path | None], SealedCode],
    out: Path,
    environ: Mapping[str, str] = os.environ,
    say: Say,
) -> Environments:
    """Choose the environments to measure in, and build them with each side's own
    ``[measure] setup`` if needed.

    ``pythons`` are the interpreters named on the command line, which come first.
    Otherwise the dependency files of both ``roots`` are compared; if they are equal, or
    there is no setup command, both sides share the running interpreter. A side without
    a setup command runs in it in any case. ``settings`` come from each side's
    perfgate.toml. ``code_of`` lists the code that an interpreter imports, which is
    added to ``seals``. Raises MeasuringError if the setup fails, and ConfigError or
    UsageError if no worker can run in an interpreter.
    """
    needs = {
        side: read_requirements(roots[side], settings[side].requirements)
        for side in _SIDES
    }
    setups = {side: settings[side].setup for side in _SIDES}
    differing = differing_files(needs["base"], needs["head"])
    if pythons["base"] or pythons["head"]:
        sides = dict.fromkeys(_SIDES, SideEnvironment())
        for side, python in pythons.items():
            if python is not None and not is_running(python):
                sides[side] = SideEnvironment(
                    check_interpreter(python, f"--{side}-python")
                )
        if all(chosen.python is None for chosen in sides.values()):
            return Environments()
        for side, chosen in sides.items():
            seals.add_code(code_of(chosen.python), side)
    elif any(setups.values()) and (differing or setups["base"] != setups["head"]):
        sides = {}
        for side in _SIDES:
            # The head's setup command is code of the head, so base's imports are sealed
            # before it runs.
            seals.begin(side)
            sides[side] = SideEnvironment()
            if setups[side]:
                sides[side] = _built(
                    side, roots[side], needs[side], settings[side], out, environ, say
                )
            seals.add_code(code_of(sides[side].python), side)
    else:
        return Environments(notes=_notes_of_shared(differing))
    say(sentence("comparing the packages of base and head"))
    is_built = not (pythons["base"] or pythons["head"])
    for side, chosen in sides.items():
        record = _describe(
            chosen.python, is_built, needs[side], settings[side], environ
        )
        sides[side] = chosen._replace(record=record)
    return Environments(base=sides["base"], head=sides["head"])


def _built(
    side: Side,
    root: Path,
    requirements: Mapping[str, str],
    settings: MeasureSettings,
    out: Path,
    environ: Mapping[str, str],
    say: Say,
) -> SideEnvironment:
    plan = SetupPlan(
        side=side,
        command=settings.setup,
        checkout=root,
        requirements=requirements,
        inherit=settings.inherit_packages,
        timeout=settings.setup_timeout,
        pass_env=settings.pass_env,
    )
    log = out / side / "setup.log"
    provided = provide_virtualenv(
        plan, cache=cache_folder(environ), environ=environ, log=log, say=say
    )
    # On a developer's machine, keeping the environment fresh is up to the developer.
    notes = (
        (REUSED, *provided.notes)
        if provided.reused and in_ci(environ)
        else provided.notes
    )
    return SideEnvironment(provided.python, notes=notes)


def _describe(
    python: Path | None,
    is_built: bool,
    requirements: dict[str, str],
    settings: MeasureSettings,
    environ: Mapping[str, str],
) -> Environment:
    kind: Literal["running", "built", "given"] = "running"
    remedy = Activity("reinstall perfgate")
    if python is not None and not is_built:
        kind = "given"
        remedy = Activity(
            "install torch and this same perfgate there, with {python} -m pip",
            python=python,
        )
    elif python is not None:
        kind = "built"
        remedy = Activity(
            "have [measure] setup install perfgate and torch too, or leave inherit_packages true"
        )
        if settings.inherit_packages:
            remedy = Activity("check what [measure] setup installs")
    with tempfile.TemporaryDirectory(prefix="perfgate-about-") as folder:
        scratch = Path(folder)
        # Listing packages needs no accelerator: torch_npu must not be imported for it.
        environment = worker_environment(
            environ,
            device="cpu",
            scratch=scratch,
            threads=1,
            hash_seed=0,
            pass_env=list(settings.pass_env),
        )
        environment = with_code(environment, share_code(scratch / "code"))
        about = ask_about(python or RUNNING, environment, cwd=scratch, remedy=remedy)
    return msgspec.structs.replace(about, kind=kind, requirements=requirements)


def _notes_of_shared(differing: list[str]) -> tuple[Message, ...]:
    """The note that both sides ran with the installed packages."""
    if not differing:
        return ()
    more = len(differing) - _NAMED_FILES
    names = differing[:_NAMED_FILES]
    listed: MessageValue = names
    if more > 0:
        listed = Message("publish.files-and-more", {"files": names, "more": more})
    of_both = {"count": len(differing), "names": listed}
    return (Message("notes.one-environment", of_both),)
