"""Traps in the files that base and head run: a file in another side's checkout that is changed, or added."""

from __future__ import annotations

import time
from pathlib import Path

from perfgate.conductor.workers.seals import SealedFolder, Seals
from perfgate.document.run import RunDocument
from perfgate.system.stamps import stamps_below
from tests.fakes.records import changed
from tests.traps.catalogue import caught, not_caught
from tests.traps.naming import names
from tests.traps.virtual import judged
from tests.unit.gate.builders import sides

SAME = [1.0 + 0.0005 * (-1) ** pair for pair in range(12)]


def sealed_base(root: Path) -> Seals:
    """The seals of a check whose base is a checkout of one file."""
    (root / "model.py").write_text("x = 1\n")
    seals = Seals(loads=None)
    stamp = SealedFolder("base", lambda: stamps_below(root, most=10), own="base", committed=frozenset({"model.py"}))
    seals.add([stamp], "base")
    time.sleep(0.02)  # the kernel's clock of files has ticks of up to 10 ms
    return seals


def documents(seals: Seals) -> tuple[RunDocument, RunDocument]:
    """Equal documents of both sides, with the seals of a check."""
    seals.check()
    base, head = sides(SAME)
    return changed(base, seal=seals.seal_of("base")), changed(head, seal=seals.seal_of("head"))


@caught(
    "a head that changes what base runs",
    fools="the head's code finds the other checkouts and makes the base as slow as itself, or plants a module there",
    by="checkouts lie in folders of random names; of their files, of packages in use and of what is linked, inode, size, "
    "mtime and ctime are compared with those before code of the head ran. No call sets a ctime, so a file that is put back "
    "shows too; and a module is reported with the state of its file before it runs. This detects a change, it does not prevent "
    "one",
    named="invalid code_changed",
)
def test_head_changes_what_base_runs(tmp_path: Path) -> set[str]:
    seals = sealed_base(tmp_path)
    seals.begin("head")
    (tmp_path / "model.py").write_text("x = 2\n")
    return names(judged(*documents(seals)))


@not_caught(
    "a process outside the job that adds a file to base's checkout while only base runs",
    fools="a service that the head asked for a process (cron, systemd-run, docker) waits until only the base runs, and then "
    "adds a module that the base imports",
    because="a file's times do not say who wrote it, and a workload may write a cache into its own checkout. perfgate ends "
    "every process that a worker leaves behind, but not what a service started. The comment names "
    "the files that base added; run perfgate where code of a change reaches no such service. A change of a file of the "
    "commit is detected at any time",
)
def test_outsider_adds_a_file_while_base_runs(tmp_path: Path) -> set[str]:
    seals = sealed_base(tmp_path)
    seals.begin("base")
    (tmp_path / "numbers.py").write_text("")
    base, head = documents(seals)
    assert base.source.seal is not None
    assert base.source.seal.own == ["base/numbers.py"]
    return names(judged(base, head))
