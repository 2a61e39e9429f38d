"""Seal the code that both sides of a check run, before any code of the change runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from perfgate.conductor.workers.environment import in_ci, worker_environment
from perfgate.conductor.workers.load_log import LoadLog
from perfgate.conductor.workers.rooms import shared_caches
from perfgate.conductor.workers.sealed_code import compile_own_code, sealed_code
from perfgate.conductor.workers.seals import (
    MOST_ENTRIES,
    SealedCode,
    SealedFolder,
    Seals,
    sealed_files,
    sealed_tree,
)
from perfgate.document.message import Message
from perfgate.document.run import Side
from perfgate.document.seal import Seal
from perfgate.git.repository import Repository
from perfgate.system.stamps import stamps_below

# The side that reads each checkout: base is measured with the head's workload files, from a separate checkout.
_READS: dict[str, Side] = {"base": "base", "harness": "base", "head": "head"}


def seal_sides(
    repository: Repository,
    commits: Mapping[str, str],
    trees: Mapping[str, Path],
    links: Mapping[str, Sequence[str]],
    environ: Mapping[str, str],
    loads: LoadLog,
    results: Sequence[str],
) -> Seals:
    """Seal the checkouts, the paths linked into them, and the code that the running interpreter imports.

    ``links`` are the links of each side, ``results`` are patterns of the files that jobs write their numbers to.
    """
    # Bytecode written by this process next to its imports would look like a change to them.
    compile_own_code()
    sys.dont_write_bytecode = True
    seals = Seals(loads=loads)
    for name, tree in trees.items():
        committed = frozenset({*repository.files(commits[name]), ".git"})
        stamp = partial(stamps_below, tree, most=MOST_ENTRIES)
        seals.add(
            [
                SealedFolder(
                    name,
                    stamp,
                    own=_READS[name],
                    committed=committed,
                    results=tuple(results),
                )
            ],
            _READS[name],
        )
        seals.texts += [tree / file for file in committed]
    linked = set().union(*links.values())
    seals.add(
        [
            sealed_tree(entry, (repository.root / entry).resolve())
            for entry in sorted(linked)
        ],
        "base",
        "head",
    )
    seals.add(
        [sealed_files(str(cache), cache) for cache in shared_caches(environ)],
        "base",
        "head",
    )
    seals.add_code(code_of(None, environ, repository.root), "base", "head")
    return seals


def code_of(python: Path | None, environ: Mapping[str, str], clone: Path) -> SealedCode:
    """The code an interpreter imports; outside CI without the clone: an editable install may be edited while measuring."""
    environment = worker_environment(
        environ,
        device="cpu",
        scratch=Path("/"),
        threads=1,
        hash_seed=0,
        pass_env=[],
        reuse_caches=True,
    )
    return sealed_code(
        python, environment, spare=None if in_ci(environ) else clone.resolve()
    )


def seal_notes(seal: Seal) -> list[Message]:
    """Notes for a side's document: files that its code wrote into its checkout, and folders too large to be sealed."""
    notes: list[Message] = []
    if seal.own:
        notes.append(Message("notes.wrote-into-checkout", {"files": seal.own}))
    if seal.left_out:
        notes.append(
            Message(
                "notes.not-sealed", {"folders": seal.left_out, "most": MOST_ENTRIES}
            )
        )
    return notes
