"""What a seal sees of files that change, and whose change it takes them for."""

from __future__ import annotations

import dataclasses
import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfgate.conductor.workers.environment import worker_environment
from perfgate.conductor.workers.sealed_code import sealed_code
from perfgate.conductor.workers.seals import SealedFolder, Seals, sealed_files, sealed_tree
from perfgate.document.run import Side
from perfgate.system.stamps import Stamps, folders_of_code, stamps_below, stamps_of_code

COMMITTED = ("model.py", "perf/workload.py")


def tree(root: Path, name: str, own: Side) -> SealedFolder:
    """Make a checkout of two files, as old as one that was just made, and return how it is sealed."""
    for file in COMMITTED:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("x = 1\n")
    return SealedFolder(name, lambda: stamps_below(root, most=1000), own=own, committed=frozenset(COMMITTED))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "a" / "base"


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return tmp_path / "b" / "head"


@pytest.fixture
def seals(base: Path, head: Path) -> Seals:
    found = Seals(loads=None)
    found.add([tree(base, "base", "base")], "base")
    found.add([tree(head, "head", "head")], "head")
    time.sleep(0.02)  # the kernel's clock of files has ticks of up to 10 ms
    return found


def write_in_place(root: Path) -> None:
    (root / "model.py").write_text("x = 2\n")


def write_and_put_back(root: Path) -> None:
    write_and_put_back_file(root / "model.py")


def write_and_put_back_file(file: Path) -> None:
    was = file.stat()
    file.write_text("x = 2\n")
    time.sleep(0.02)
    file.write_text("x = 1\n")
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))


def write_through_a_hard_link(root: Path) -> None:
    link = root.parent / "link"
    os.link(root / "model.py", link)
    was = link.stat()
    link.write_text("x = 2\n")
    os.utime(link, ns=(was.st_atime_ns, was.st_mtime_ns))
    link.unlink()


def write_through_an_open_descriptor(root: Path) -> None:
    with (root / "model.py").open("r+") as file:
        Path(f"/proc/self/fd/{file.fileno()}").write_text("x = 2\n")


def swap_for_another(root: Path) -> None:
    other = root.parent / "other"
    other.write_text("x = 2\n")
    was = (root / "model.py").stat()
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.replace(root / "model.py")


def swap_for_a_link(root: Path) -> None:
    (root / "model.py").unlink()
    (root / "model.py").symlink_to("/dev/null")


def swap_the_folder_and_put_it_back(root: Path) -> None:
    perf, away = root / "perf", root.parent / "away"
    perf.rename(away)
    perf.mkdir()
    (perf / "workload.py").write_text("x = 2\n")
    (perf / "workload.py").unlink()
    perf.rmdir()
    away.rename(perf)


def plant_and_remove(root: Path) -> None:
    (root / "perf" / "numbers.py").write_text("")
    (root / "perf" / "numbers.py").unlink()


def plant_bytecode(root: Path) -> None:
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / f"model.{sys.implementation.cache_tag}.pyc").write_bytes(b"")


ATTACKS: dict[Callable[[Path], None], list[str]] = {
    write_in_place: ["base/model.py"],
    write_and_put_back: ["base/model.py"],
    write_through_a_hard_link: ["base/model.py"],
    write_through_an_open_descriptor: ["base/model.py"],
    swap_for_another: ["base/model.py"],
    swap_for_a_link: ["base/model.py"],
    swap_the_folder_and_put_it_back: ["base/perf"],
    plant_and_remove: ["base/perf"],
    plant_bytecode: [f"base/__pycache__/model.{sys.implementation.cache_tag}.pyc"],
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
@pytest.mark.parametrize("running", [("head",), ("base", "head")], ids=["head runs", "both run"])
def test_check__base_changed_while_head_can_run__broken_and_named(
    seals: Seals, base: Path, attack: Callable[[Path], None], running: tuple[Side, ...]
) -> None:
    seals.begin(*running)
    attack(base)
    seals.check()
    assert seals.seal_of("base").changed == ATTACKS[attack]
    assert seals.seal_of("base").before != seals.seal_of("base").after
    assert not seals.seal_of("head").broken


def test_check__nothing_changed__whole(seals: Seals) -> None:
    for side in ("base", "head", "base"):
        seals.begin(side)  # type: ignore[arg-type]
    seals.check()
    assert [seals.seal_of(side).broken for side in ("base", "head")] == [False, False]  # type: ignore[arg-type]
    assert seals.seal_of("base").entries == 4  # two files, two folders


def test_check__base_writes_new_files_while_it_runs_alone__its_own(seals: Seals, base: Path) -> None:
    seals.begin("base")
    (base / "cache").mkdir()
    (base / "cache" / "weights").write_text("1")
    seals.begin("head")
    seals.begin("base")
    (base / "cache" / "weights").write_text("22")
    seals.check()
    assert not seals.seal_of("base").broken
    assert seals.seal_of("base").own == ["base/cache/weights"]


def test_check__job_writes_the_results_that_it_is_told_to__no_report_names_them(base: Path) -> None:
    seals = Seals(loads=None)
    seals.add([dataclasses.replace(tree(base, "base", "base"), results=("perf/out-*.json",))], "base")
    time.sleep(0.02)
    seals.begin("base")
    (base / "perf" / "out-1.json").write_text("1")
    (base / "perf" / "log.json").write_text("1")
    seals.check()
    assert not seals.seal_of("base").broken
    assert seals.seal_of("base").own == ["base/perf/log.json"]


def test_check__head_changes_what_base_wrote__broken(seals: Seals, base: Path) -> None:
    seals.begin("base")
    (base / "weights").write_text("1")
    seals.begin("head")
    (base / "weights").write_text("2")
    seals.begin("base")
    assert seals.seal_of("base").changed == ["base/weights"]


@pytest.mark.parametrize("side", ["base", "head"])
def test_check__side_changes_a_file_of_its_commit__broken_whoever_runs(
    seals: Seals, base: Path, head: Path, side: Side
) -> None:
    seals.begin(side)
    ({"base": base, "head": head}[side] / "model.py").write_text("x = 2\n")
    seals.check()
    assert seals.seal_of(side).changed == [f"{side}/model.py"]


def test_check__head_writes_into_its_own_checkout__its_own_also_beside_base(seals: Seals, head: Path) -> None:
    seals.begin("base", "head")
    (head / "log").write_text("1")
    seals.check()
    assert not seals.seal_of("head").broken
    assert seals.seal_of("head").own == ["head/log"]


def test_check__head_plants_a_file__is_not_base_own_once_base_has_run_alone(seals: Seals, base: Path) -> None:
    seals.begin("head")
    plant_bytecode(base)
    for side in ("base", "head", "base"):
        seals.begin(side)  # type: ignore[arg-type]
    seals.check()
    assert seals.seal_of("base").changed == ATTACKS[plant_bytecode]


def test_check__broken_once__stays_broken_though_all_is_put_back(seals: Seals, base: Path) -> None:
    seals.begin("head")
    write_in_place(base)
    seals.begin("base")
    (base / "model.py").write_text("x = 1\n")
    seals.begin("head")
    seals.check()
    assert seals.seal_of("base").changed == ["base/model.py"]


def _swap(folder: Path) -> None:
    """Put another folder in the place of one, or take it away again; a copy of what was there lies in it."""
    away = folder.with_name(f"{folder.name}-away")
    if away.exists():
        shutil.rmtree(folder)
        away.rename(folder)
    else:
        folder.rename(away)
        shutil.copytree(away, folder, symlinks=True)


@pytest.mark.parametrize("swapped", ["lib", "elsewhere"], ids=["the packages", "the target of a link"])
def test_begin__packages_swapped_for_others_and_put_back__broken(tmp_path: Path, swapped: str) -> None:
    packages, elsewhere = tmp_path / "lib" / "python3" / "site-packages", tmp_path / "elsewhere" / "data"
    for folder in (packages, elsewhere):
        folder.mkdir(parents=True)
    (elsewhere / "w.bin").write_text("1")
    (packages / "w.bin").symlink_to(elsewhere / "w.bin")
    seals = Seals(loads=None)
    seals.add([sealed_tree("packages", packages)], "base", "head")
    seals.begin("head")
    _swap(tmp_path / swapped)
    seals.begin("base")
    _swap(tmp_path / swapped)
    seals.begin("head")
    seals.check()
    assert seals.seal_of("base").changed == ["packages/w.bin"]


def test_begin__packages__walked_only_by_a_check_which_sees_what_was_put_back(tmp_path: Path) -> None:
    walks = []

    def stamp() -> Stamps | None:
        walks.append(1)
        return stamps_below(tmp_path, most=1000)

    (tmp_path / "model.py").write_text("x = 1\n")
    seals = Seals(loads=None)
    seals.add([SealedFolder("packages", stamp, root=tmp_path)], "base", "head")
    time.sleep(0.02)
    seals.begin("head")
    write_and_put_back(tmp_path)
    for side in ("base", "head", "base"):
        seals.begin(side)  # type: ignore[arg-type]
    assert len(walks) == 1
    seals.check()
    assert seals.seal_of("base").changed == ["packages/model.py"]


@pytest.mark.parametrize("planted", ["path/git", "shared/sitecustomize.py", "shared/package/native.so"])
def test_begin__planted_for_one_turn_of_base__broken_though_it_is_gone(tmp_path: Path, planted: str) -> None:
    (tmp_path / "path").mkdir()
    (tmp_path / "shared" / "package").mkdir(parents=True)
    environment = worker_environment(
        {"PATH": f"{tmp_path}/path:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path / "shared")},
        device="cpu", scratch=tmp_path, threads=1, hash_seed=0, pass_env=[],
    )  # fmt: skip
    seals = Seals(loads=None)
    seals.add(
        [folder for folder in sealed_code(None, environment, spare=None).folders if str(tmp_path) in folder.name],
        "base",
    )
    time.sleep(0.02)
    seals.begin("head")
    (tmp_path / planted).write_text("")
    seals.begin("base")
    (tmp_path / planted).unlink()
    seals.begin("head")
    seals.check()
    assert seals.seal_of("base").changed == [str(tmp_path / planted)]


def test_begin__clone_that_is_installed_in_place__walked_only_once_files_were_added_or_removed(tmp_path: Path) -> None:
    walks = []

    def stamp() -> Stamps | None:
        walks.append(1)
        return stamps_of_code(tmp_path, most=1000)

    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "model.py").write_text("x = 1\n")
    seals = Seals(loads=None)
    seals.add([SealedFolder("clone", stamp, root=tmp_path, folders=folders_of_code)], "base", "head")
    time.sleep(0.02)
    for side in ("base", "head", "base"):
        seals.begin(side)  # type: ignore[arg-type]
    seals.check_if_due()
    assert len(walks) == 1
    (tmp_path / "package" / "notes.txt").write_text("no code")
    for side in ("head", "base", "head"):
        seals.begin(side)  # type: ignore[arg-type]
    assert len(walks) == 2
    (tmp_path / "package" / "model.py").write_text("x = 2\n")
    seals.check()
    assert seals.seal_of("base").changed == ["clone/package/model.py"]


def test_add__packages_that_two_environments_share__sealed_once_for_both_sides(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("x = 1\n")
    seals = Seals(loads=None)
    seals.add([sealed_tree("packages", tmp_path)], "base")
    seals.add([sealed_tree("packages", tmp_path)], "head")
    assert {seals.seal_of("base").entries, seals.seal_of("head").entries} == {2}
    time.sleep(0.02)
    seals.begin("head")
    write_in_place(tmp_path)
    seals.check()
    assert seals.seal_of("base").changed == seals.seal_of("head").changed == ["packages/model.py"]


def _packages_with_a_cache(root: Path) -> tuple[Seals, Path, Path]:
    """Seal a package whose file is a hard link to a package manager's cache; the seals, the file, and that of the cache."""
    cached, installed = root / "cached.py", root / "packages" / "model.py"
    cached.write_text("x = 1\n")
    installed.parent.mkdir()
    os.link(cached, installed)
    seals = Seals(loads=None)
    seals.add([sealed_tree("packages", installed.parent)], "base", "head")
    time.sleep(0.02)
    seals.begin("base", "head")
    return seals, installed, cached


def test_check__file_of_a_cache_is_linked_into_another_environment_and_unlinked__whole(tmp_path: Path) -> None:
    seals, installed, cached = _packages_with_a_cache(tmp_path)
    before = installed.stat()
    for name in ("one", "two"):
        os.link(cached, tmp_path / name)
    (tmp_path / "one").unlink()
    seals.check()
    assert installed.stat().st_ctime_ns != before.st_ctime_ns
    seal = seals.seal_of("base")
    assert seal.changed == []
    assert seal.before == seal.after


def write_by_a_mapping_that_stays_open(cached: Path) -> None:
    was = cached.stat()
    file = cached.open("r+b")
    _STILL_OPEN.append(file)
    mapped = mmap.mmap(file.fileno(), 0)
    _STILL_OPEN.append(mapped)
    mapped[4:5] = b"2"
    mapped.flush()
    mapped[4:5] = b"1"
    mapped.flush()
    os.utime(cached, ns=(was.st_atime_ns, was.st_mtime_ns))


_STILL_OPEN: list[Any] = []


@pytest.mark.parametrize(
    "attack",
    [write_and_put_back_file, write_by_a_mapping_that_stays_open],
    ids=lambda attack: attack.__name__,
)
def test_check__file_of_a_cache_is_written_and_put_back_beside_a_new_link__broken(
    attack: Callable[[Path], None], tmp_path: Path
) -> None:
    seals, installed, cached = _packages_with_a_cache(tmp_path)
    before = installed.stat()
    attack(cached)
    os.link(cached, tmp_path / "another")
    assert installed.read_text() == "x = 1\n"
    assert installed.stat().st_mtime_ns == before.st_mtime_ns
    seals.check()
    while _STILL_OPEN:
        _STILL_OPEN.pop().close()
    assert seals.seal_of("base").changed == ["packages/model.py"]


def test_add__target_of_a_link_in_weights_changes__broken(tmp_path: Path) -> None:
    blob, weights = tmp_path / "blob", tmp_path / "weights"
    blob.write_text("1")
    weights.mkdir()
    (weights / "w.bin").symlink_to(blob)
    seals = Seals(loads=None)
    seals.add([sealed_tree("weights", weights)], "base", "head")
    time.sleep(0.02)
    seals.begin("head")
    blob.write_text("2")
    seals.check()
    assert seals.seal_of("base").changed == seals.seal_of("head").changed == ["weights/w.bin"]


def test_add__more_files_than_can_be_compared__said_and_not_sealed(tmp_path: Path) -> None:
    seals = Seals(loads=None)
    for name in "abc":
        (tmp_path / name).touch()
    seals.add([SealedFolder("many", lambda: stamps_below(tmp_path, most=2))], "base")
    assert seals.seal_of("base").left_out == ["many"]


def test_check_if_due__a_moment_after_the_last__not_again() -> None:
    looks = []
    now = iter([0.0, 0.0, 1.0, 2.0, 51.5, 51.5, 52.0]).__next__

    def stamp() -> dict[str, tuple[int, ...]]:
        looks.append(1)
        return {}

    seals = Seals(clock=now, loads=None)
    seals.add([SealedFolder("packages", stamp)], "base")
    seals.check()  # takes 1 s
    seals.check_if_due()
    assert len(looks) == 2
    seals.check_if_due()  # 50 s later
    assert len(looks) == 3


@pytest.mark.parametrize("planted", ["sitecustomize.py", "evil.pth", "package/native.so", "package/__pycache__/m.pyc"])
def test_sealed_code__planted_where_both_import_from__broken(tmp_path: Path, planted: str) -> None:
    shared = tmp_path / "shared"
    (shared / "package" / "__pycache__").mkdir(parents=True)
    environment = worker_environment(
        {"PATH": os.environ["PATH"], "PYTHONPATH": str(shared)},
        device="cpu", scratch=tmp_path, threads=1, hash_seed=0, pass_env=[],
    )  # fmt: skip
    folders = {folder.name: folder for folder in sealed_code(None, environment, spare=None).folders}
    seals = Seals(loads=None)
    seals.add([folders[str(shared)]], "base", "head")
    seals.begin("head")
    (shared / planted).write_text("")
    seals.check()
    assert seals.seal_of("base").changed == [f"{shared}/{planted}"]


def test_sealed_code__this_interpreter__packages_library_and_programs_are_sealed(tmp_path: Path) -> None:
    environment = worker_environment(
        {"PATH": os.environ["PATH"]}, device="cpu", scratch=tmp_path, threads=1, hash_seed=0, pass_env=[]
    )
    names = {folder.name for folder in sealed_code(None, environment, spare=None).folders}
    import torch

    assert str(Path(torch.__file__).resolve().parents[1]) in names
    assert str(Path(os.__file__).resolve().parent) in names
    assert str(Path(sys.executable).parent) in names


def test_stamps_of_code__folder_where_programs_work__only_what_can_be_imported(tmp_path: Path) -> None:
    for name in ("model.py", "data.bin", ".git/hook.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert stamps_of_code(tmp_path, most=10) is not None
    assert set(stamps_of_code(tmp_path, most=10) or ()) == {"model.py"}


def test_sealed_files__cache_of_a_hub__new_files_are_welcome_but_for_those_that_python_starts_with(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.bin").write_text("weights")
    seals = Seals(loads=None)
    seals.add([sealed_files("hub", tmp_path)], "base", "head")
    seals.begin("base", "head")
    (tmp_path / "downloaded.bin").write_text("more weights")
    (tmp_path / "downloaded.lock").write_text("")
    seals.check()
    assert not seals.seal_of("base").changed
    time.sleep(0.02)
    (tmp_path / "model.bin").write_text("others")
    (tmp_path / "usercustomize.py").write_text("")
    seals.check()
    assert sorted(seals.seal_of("base").changed) == ["hub/model.bin", "hub/usercustomize.py"]
