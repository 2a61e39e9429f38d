"""What an exception tells the author of the project in which it was raised."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from perfgate.document.message import as_message, english
from perfgate.measuring.checklist.mistakes import ProjectCode, explained, own_traceback
from perfgate.measuring.workload.load import load_workload


@pytest.fixture
def told(tmp_path: Path) -> Callable[[str], str]:
    """Run code as ``model.py`` of a project, and return what is said of the error."""

    def run(code: str) -> str:
        file = tmp_path / "model.py"
        file.write_text(code)
        with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever the code raises
            exec(compile(code, str(file), "exec"), {})
        return english(as_message(explained(caught.value, ProjectCode(tmp_path, [".", "src"], "cpu"))))

    return run


def test_explained__package_in_another_folder__names_python_path(told: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "python" / "encoder").mkdir(parents=True)
    (tmp_path / "python" / "encoder" / "__init__.py").touch()
    assert told("x = 1\nimport encoder\n") == (
        "ModuleNotFoundError: No module named 'encoder' (at model.py:2); encoder lies in python/: "
        'write python_path = [".", "src", "python"] under [measure] in perfgate.toml'
    )


def test_explained__module_of_another_name__names_the_one_that_is_there(
    told: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src" / "nets").mkdir(parents=True)
    (tmp_path / "src" / "nets" / "__init__.py").touch()
    (tmp_path / "src" / "nets" / "encoder.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "src")
    assert told("import nets.encoders\n") == (
        "ModuleNotFoundError: No module named 'nets.encoders' (at model.py:1); there is nets.encoder"
    )


def test_explained__misspelt_module_of_the_project__names_it(told: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "encoder.py").touch()
    assert told("import encodre\n") == (
        "ModuleNotFoundError: No module named 'encodre' (at model.py:1); there is encoder; if encodre is a package, "
        f"install it for {sys.executable}"
    )


def test_explained__module_of_a_submodule_that_is_empty__says_how_to_fill_it(
    told: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / ".gitmodules").write_text('[submodule "third"]\n\tpath = libs/third\n\turl = ../third.git\n')
    (tmp_path / "libs" / "third").mkdir(parents=True)
    assert told("import third.net\n") == (
        "ModuleNotFoundError: No module named 'third' (at model.py:1); libs/third is a submodule that this clone has not "
        "filled: `git submodule update --init --recursive`, in CI by the input submodules: recursive"
    )
    (tmp_path / "libs" / "third" / "other.py").touch()
    assert "is a submodule" not in told("import third.net\n")


def test_explained__package_that_is_nowhere__names_the_python_that_lacks_it(told: Callable[[str], str]) -> None:
    assert told("import transformerz\n") == (
        "ModuleNotFoundError: No module named 'transformerz' (at model.py:1); install the package that has transformerz for "
        f"{sys.executable}, or name the folder of the project that holds it in [measure] python_path"
    )


def test_explained__file_that_git_ignores__names_link(
    told: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert told("def load():\n    return open('weights/m.pt')\n\n\nload()\n") == (
        "FileNotFoundError: [Errno 2] No such file or directory: 'weights/m.pt' (at model.py:2); weights/m.pt is not in the "
        "checkout, the base of relative paths; to include a file that git ignores, write "
        'link = ["weights/m.pt"] under [measure] in perfgate.toml'
    )


def test_explained__file_in_the_home__says_that_workers_have_another(
    told: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path.parent / "somewhere"))
    text = told("from pathlib import Path\nopen(Path.home() / 'weights.pt')\n")
    assert "; workers have their own HOME, without ~/weights.pt: write the path in full" in text


def test_explained__variable_that_workers_do_not_get__names_pass_env(told: Callable[[str], str]) -> None:
    assert told("import os\nos.environ['WEIGHTS_OF_MODEL']\n") == (
        "KeyError: 'WEIGHTS_OF_MODEL' (at model.py:2); workers see only a few environment variables: set WEIGHTS_OF_MODEL, "
        "and add it to pass_env under [measure] in perfgate.toml"
    )


def test_explained__key_of_a_dictionary__no_hint(told: Callable[[str], str]) -> None:
    assert told("{}['layers']\n") == "KeyError: 'layers' (at model.py:1)"


def test_explained__cuda_in_the_code_and_a_cpu__names_device(told: Callable[[str], str]) -> None:
    assert told("raise AssertionError('Torch not compiled with CUDA enabled')\n") == (
        "AssertionError: Torch not compiled with CUDA enabled (at model.py:1); it is measured on cpu: write .to(device) with "
        'the device that build(device) gets, or set device = "cuda" in perfgate.toml'
    )


def test_own_traceback__error_below_our_own_frames__begins_in_the_project(tmp_path: Path) -> None:
    file = tmp_path / "workload.py"
    file.write_text("def f():\n    raise ValueError('deep')\n\n\nf()\n")
    with pytest.raises(ValueError, match="deep") as caught:
        load_workload(file, "w", root=tmp_path, python_path=[])
    raised = caught.value.with_traceback(caught.tb.tb_next)  # without the frame of this test
    text = own_traceback(raised)
    assert text is not None
    assert text.splitlines()[1] == f'  File "{file}", line 5, in <module>'
