"""Which changes of a workload file, and of what stands beside it, are changes of the harness."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.conductor.code.harness import changed_lines, code_hash

WORKLOAD = '"""What is measured."""\nfrom made import inputs\nimport model\n\nbatch = 8\n'
FILES = {
    "perf/workload.py": WORKLOAD,
    "perf/made.py": "import more.shapes\n\ndef inputs(batch):\n    return batch\n",
    "perf/more/shapes.py": "LONG = 512\n",
    "perf/other.py": "x = 1\n",
    "model.py": "width = 64\n",
}


def write(root: Path, **changes: str) -> Path:
    for name, text in {**FILES, **{key.replace("__", "/") + ".py": text for key, text in changes.items()}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "perf" / "workload.py"


def hashed(root: Path, **changes: str) -> str:
    return code_hash(write(root, **changes), importable=[root, root / "src"])


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"perf__workload": WORKLOAD.replace("8", "4")}, True),
        ({"perf__workload": WORKLOAD.replace("What is", "All that is") + "# the end\n"}, False),
        ({"perf__made": FILES["perf/made.py"].replace("return batch", "return 1")}, True),
        ({"perf__more__shapes": "LONG = 16\n"}, True),
        ({"perf__other": "x = 2\n"}, True),  # either side's own code may import it
        ({"perf__colorsys": "x = 2\n"}, True),
        ({"model": "width = 128\n"}, False),
        ({"perf__workload": "def (:"}, True),
    ],
)
def test_code_hash__change__differs_where_the_harness_does(
    tmp_path: Path, changes: dict[str, str], differs: bool
) -> None:
    assert (hashed(tmp_path / "base") != hashed(tmp_path / "head", **changes)) is differs


def test_code_hash__workload_among_the_projects_own_modules__only_the_file_itself(tmp_path: Path) -> None:
    for side, width in (("base", "64"), ("head", "128")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "workload.py").write_text("import model\n")
        (tmp_path / side / "model.py").write_text(f"width = {width}\n")
    hashes = {code_hash(tmp_path / side / "workload.py", importable=[tmp_path / side]) for side in ("base", "head")}
    assert len(hashes) == 1
    assert code_hash(tmp_path / "nothing.py", importable=[]) == ""


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"perf__workload": WORKLOAD.replace("8", "4")}, ["workload.py:5"]),
        (
            {
                "perf__workload": WORKLOAD.replace("What is", "All that is").replace(
                    "import model", "import model  # ours"
                )
            },
            [],
        ),
        ({"perf__workload": WORKLOAD.replace("import model\n", "")}, ["workload.py:4"]),
        (
            {"perf__made": FILES["perf/made.py"].replace("return batch", "twice = 2 * batch\n    return twice")},
            ["made.py:4"],
        ),
        (
            {"perf__more__shapes": "LONG = 16\n", "perf__made": "import more.shapes\n"},
            ["made.py:1", "more/shapes.py:1"],
        ),
        ({"perf__made": "def broken(:\n"}, []),
        ({"perf__colorsys": "x = 2\n"}, ["colorsys.py:1"]),
        ({"model": "width = 128\n"}, []),
    ],
)
def test_changed_lines__workload_file_and_what_it_imports__statement_of_each_change(
    tmp_path: Path, changes: dict[str, str], lines: list[str]
) -> None:
    base, head = write(tmp_path / "base"), write(tmp_path / "head", **changes)
    importable = [tmp_path / "base"], [tmp_path / "head"]
    assert changed_lines(base, head, importable=importable) == lines


def test_code_hash__data_and_prose_beside_the_workload__data_counts(tmp_path: Path) -> None:
    for side in ("base", "data", "prose"):
        write(tmp_path / side)
    (tmp_path / "data" / "perf" / "shapes.json").write_text("[1]")
    (tmp_path / "prose" / "perf" / "README.md").write_text("# How to")
    base, data, prose = (
        code_hash(tmp_path / side / "perf" / "workload.py", importable=[]) for side in ("base", "data", "prose")
    )
    assert base != data
    assert base == prose


def test_changed_lines__workload_file_was_renamed__it_is_the_same_file(tmp_path: Path) -> None:
    base, head = write(tmp_path / "base"), write(tmp_path / "head", perf__other=WORKLOAD.replace("8", "4"))
    assert changed_lines(base, head.with_name("other.py"), importable=([], [])) == ["other.py:5"]
