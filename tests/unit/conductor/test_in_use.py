"""Which changes of packages, libraries and programs concern a side, by what its processes load and name."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfgate.conductor.workers.environment import worker_environment
from perfgate.conductor.workers.in_use import FolderInUse, UsedFiles
from perfgate.conductor.workers.interpreters import share_code, with_code
from perfgate.conductor.workers.load_log import LoadLog, Loads, with_reports
from perfgate.conductor.workers.sealed_code import sealed_code
from perfgate.conductor.workers.seals import Seals
from perfgate.system.loader_cache import entries_of_loader_cache
from perfgate.system.loads import LOADS_VARIABLE
from perfgate.system.stamps import stamps_below
from tests.each import each

PACKAGES = {
    "used/__init__.py": "try:\n    import faster_one\nexcept ImportError:\n    pass\n",
    "used/lazy.py": "",
    "used/table.json": "{}",
    "single.py": "import subprocess\nTOOL = 'some-tool --fast'\nLIBRARY = 'libplugin.so.3'\n"
    "def fortune" + "_call(): pass\nNAMES = ['fortune" + "_call']\n",
    # In two parts: the words of this very file are among those of loaded modules.
    "shared/used_part/__init__.py": "MODE = 'fortune" + "-mode'\n",
    "shared/other_part/__init__.py": "",
    "unused/__init__.py": "",
}


class Place:
    """A folder of packages on the import path, folders of programs and libraries, all sealed, and a process that reports."""

    def __init__(self, root: Path, log: LoadLog, python: Path) -> None:
        self.python = python
        self.packages, self.programs, self.libraries = (root / name for name in ("site-packages", "bin", "lib"))
        for folder in (self.packages, self.programs, self.libraries):
            folder.mkdir()
        for name, text in PACKAGES.items():
            self.write(name, text)
        environ = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.packages),
            "LD_LIBRARY_PATH": str(self.libraries),
        }
        environment = worker_environment(environ, device="cpu", scratch=root, threads=1, hash_seed=0, pass_env=[])
        self.environment = with_code(environment, share_code(root / "code"))
        self.log = log
        self.seals = Seals(loads=log)
        self.add_code()
        time.sleep(0.02)  # the kernel's clock of files has ticks of up to 10 ms

    def add_code(self) -> None:
        self.seals.add_code(sealed_code(self.python, self.environment, spare=None), "base", "head")

    def write(self, name: str, text: str, folder: Path | None = None) -> Path:
        file = (folder or self.packages) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def run(self, code: str = "import used, single, shared.used_part") -> None:
        """Run a process of a side, which reports what it loads."""
        program = f"from perfgate.system.loads import report_loads\nreport_loads()\n{code}"
        subprocess.run([self.python, "-c", program], env=with_reports(self.environment, self.log), check=True)

    def changed(self) -> list[str]:
        self.seals.check()
        return self.seals.seal_of("base").changed


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter without packages: the folders of ours hold tens of thousands of files, and each seal reads them all."""
    folder = tmp_path_factory.mktemp("interpreter")
    venv.create(folder, with_pip=False, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture
def place(tmp_path: Path, python: Path) -> Iterator[Place]:
    with LoadLog() as log:
        yield Place(tmp_path, log, python)


UNRELATED = {
    "a new package": "cowsay/__init__.py",
    "a new module": "cowsay.py",
    "its metadata": "cowsay-1.0.dist-info/METADATA",
    "its bytecode": "__pycache__/cowsay.cpython-311.pyc",
    "a package that no side loads": "unused/__init__.py",
    "a part beside one in use": "shared/new_part/__init__.py",
    "another part of it": "shared/other_part/__init__.py",
    "bytecode of a module in use that no side has loaded": "used/__pycache__/lazy.cpython-311.pyc",
    "a library that nobody loads": "cowsay.libs/libcow.so.12",
}
IN_USE = {
    "a path file": "evil.pth",
    "sitecustomize": "sitecustomize.py",
    "a module that a side loads": "single.py",
    "a module of its package": "used/lazy.py",
    "data of its package": "used/table.json",
    "a new file of its package": "used/new.so",
    "a part in use": "shared/used_part/__init__.py",
    "a name that the standard library has": "json/__init__.py",
    "a module with such a name": "os.py",
    "a library that a module in use names": "vendor.libs/libplugin.so.3",
}


def folder_in_use(root: Path) -> FolderInUse:
    """The packages while a process has loaded some of them, and a module of the standard library."""
    for name, text in PACKAGES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    expected = stamps_below(root, most=100)
    assert expected is not None
    loaded = {"used": "used/__init__.py", "single": "single.py", "shared.used_part": "shared/used_part/__init__.py"}
    states = {str(root / file): frozenset({expected[file]}) for file in loaded.values()}
    used = UsedFiles(Loads(frozenset({*loaded, "os", "json", "json.decoder"}), states))
    return FolderInUse(root, "modules", expected, used, lambda: used.library_names({}))


@each("what, name", UNRELATED.items())
def test_concerns__unrelated_change_of_packages__does_not_count(tmp_path: Path, what: str, name: str) -> None:
    assert not folder_in_use(tmp_path).concerns(name), what


@each("what, name", IN_USE.items())
def test_concerns__what_a_side_uses_or_could_load_instead__counts(tmp_path: Path, what: str, name: str) -> None:
    assert folder_in_use(tmp_path).concerns(name), what


def test_check__packages_come_and_one_in_use_changes__that_one_is_named(place: Place) -> None:
    place.run()
    for name in UNRELATED.values():
        place.write(name, "# another\n")
    assert place.changed() == []
    seal = place.seals.seal_of("base")
    assert seal.before == seal.after
    file = place.write("used/lazy.py", "# another\n")
    assert place.changed() == [str(file)]
    seal = place.seals.seal_of("base")
    assert seal.before != seal.after


def test_check__name_that_a_side_could_not_import_is_planted_and_taken_away__counts(place: Place) -> None:
    place.run()
    file = place.write("faster_one.py", "")
    assert place.changed() == []  # nobody has loaded it
    place.run()
    file.unlink()
    assert place.changed() == [str(file)]


def test_check__packages_are_others_for_one_load_and_put_back__counts(place: Place) -> None:
    place.run()
    away = place.packages.with_name("away")
    place.packages.rename(away)
    for name, text in PACKAGES.items():
        place.write(name, text)
    place.run()
    shutil.rmtree(place.packages)
    away.rename(place.packages)
    assert str(place.packages / "single.py") in place.changed()


def test_check__file_in_use_gets_another_name_and_is_loaded_again__does_not_count(place: Place, tmp_path: Path) -> None:
    file = place.packages / "single.py"
    os.link(file, tmp_path / "cached.py")
    place.seals = Seals(loads=place.log)
    place.add_code()
    place.run()
    os.link(file, tmp_path / "other.py")
    place.run()
    assert place.changed() == []
    with file.open("a"):
        os.utime(file)
    assert place.changed() == [str(file)]


def test_check__programs__count_if_code_in_use_or_a_checkout_names_them(place: Place, tmp_path: Path) -> None:
    place.run()
    place.seals.texts.append(place.write("run.sh", "convert input", tmp_path))
    # In two parts: the words of this very file are among those of loaded modules.
    place.write("fortune" + "-teller", "", place.programs)
    assert place.changed() == []
    for name in ("some-tool", "convert", "python3.11"):
        place.write(name, "", place.programs)
    assert place.changed() == [f"{place.programs}/{name}" for name in ("convert", "python3.11", "some-tool")]


def test_check__program_called_like_a_function_or_a_word__counts_only_if_a_text_names_it(
    place: Place, tmp_path: Path
) -> None:
    mode, text, long_text = ("fortune" + ending for ending in ("-mode", "-text", "-long"))
    place.run()
    called = mode.replace("-", "_")
    model = f'def forward(x):\n    return {called}(x)\nrun(\'{text} x\')\nrun("""\n{long_text} x\n""")\n'
    place.seals.texts.append(place.write("model.py", model, tmp_path))
    for name in (mode, called, "fortune" + "_call"):
        place.write(name, "", place.programs)
    assert place.changed() == []
    for name in (text, long_text):
        place.write(name, "", place.programs)
    assert place.changed() == [f"{place.programs}/{name}" for name in (long_text, text)]


def test_check__libraries__count_if_a_library_or_module_in_use_names_them(place: Place) -> None:
    place.run()
    place.write("lib" + "FLAC.so.12", "", place.libraries)
    assert place.changed() == []
    for name in ("libplugin.so.3.1", "libc.so.6"):
        place.write(name, "", place.libraries)
    assert place.changed() == [f"{place.libraries}/{name}" for name in ("libc.so.6", "libplugin.so.3.1")]


def test_check__without_reports__every_change_counts(tmp_path: Path, python: Path) -> None:
    with LoadLog() as log:
        place = Place(tmp_path, log, python)
        place.seals.loads = None
        file = place.write("cowsay.py", "")
        assert place.changed() == [str(file)]


def test_load_log__modules_of_this_process__in_use_in_whatever_state_they_were_before_the_seal(tmp_path: Path) -> None:
    with LoadLog() as log:
        loads = log.read()
    assert loads is not None
    assert loads.states[os.__file__] == frozenset()
    used = folder_in_use(tmp_path)
    assert used.is_sealed("single.py", frozenset())
    assert not used.is_sealed("single.py", frozenset({(1, 2, 3, 4, 5)}))


def test_load_log__anybody_sends_it_nonsense__reads_on(place: Place) -> None:
    place.run(
        "import os, socket\n"
        "sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        f"address = chr(0) + os.environ['{LOADS_VARIABLE}']\n"
        "for message in (b'', b'x', bytes(range(256)), b'name' + bytes(1) + b'/file' + bytes(1) + b'no number'):\n"
        "    sender.sendto(message, address)\n"
        "import used"
    )
    loads = place.log.read()
    assert loads is not None
    assert {"used", "os"} <= loads.modules
    assert str(place.packages / "used" / "__init__.py") in loads.states
    assert "/file" not in loads.states


def test_report_loads__nobody_listens__the_program_runs(place: Place) -> None:
    code = "from perfgate.system.loads import report_loads\nreport_loads()\nimport used"
    done = subprocess.run([place.python, "-c", code], env={**place.environment, LOADS_VARIABLE: "nobody"}, check=False)
    assert done.returncode == 0


def test_entries_of_loader_cache__of_this_machine__the_library_of_c(tmp_path: Path) -> None:
    assert "libc.so.6" in entries_of_loader_cache()
    (tmp_path / "damaged").write_bytes(b"glibc-ld.so.cache1.1" + b"\xff" * 40)
    assert list(entries_of_loader_cache(tmp_path / "damaged")) == ["."]
    assert entries_of_loader_cache(tmp_path / "absent") == {}
