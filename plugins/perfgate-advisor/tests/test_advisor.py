"""The advisor of msprof-analyze: its workbook, and the program as perfgate runs it."""

from __future__ import annotations

import os
import stat
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from perfgate_advisor import msprof_analyze
from perfgate_advisor.workbook import RULES, advisories

from perfgate.catalogue.lookup import RULE_ADVICE
from perfgate.document.run import Advisory, Artifact
from perfgate.flows.run.advisors import advise_profile, advise_run
from tests.fakes.documents import make_run
from tests.waiting import left_in_the_end
from tests.wording import worded

HEADER = (
    "category",
    "description",
    "suggestion",
    "problem count",
    "total_time(us)",
    "time ratio",
)
# In the shape of what version 26.2.0 writes about recordings of a 910B, in words of our own.
SHEETS: dict[str, list[tuple[object, ...]]] = {
    "problems": [
        HEADER,
        ("Overall Summary", "A step takes 9 ms.\n  -- 5 ms\n", None, None, None, None),
        (
            "Byte Alignment Analysis",
            "2 collectives\nare not aligned.",
            "1. Align them.",
            None,
            None,
            None,
        ),
        (
            "Operator Dynamic Shape Issues",
            "shapes change",
            "switch it off",
            1,
            None,
            None,
        ),
        (
            "Cube Operator Perf Analysis",
            "bottlenecks",
            "look at them",
            None,
            None,
            None,
        ),
        (
            "OPERATOR SEQUENCE ANALYSIS BASED ON MTE BOUND",
            "sequences",
            "fuse them",
            3,
            "37.5",
            "0.0039",
        ),
    ],
    "Byte Alignment Analysis": [
        ("op name", "total size(Byte)", "duration(us)"),
        ("hcom_allReduce__1", 28647232, 1816.8),
        ("hcom_allReduce__2", 17267200, 1204.6),
    ],
    "Cube Operator Perf Analysis": [
        ("Type", "Description"),
        ("bound", "MatMulV3_7 Op shape: 8,16 dtype: FLOAT"),
    ],
    "OPERATOR SEQUENCE ANALYSIS BASE": [("start index", "end index"), (33, 42)],
}
SOURCE = "msprof-analyze advisor 26.2.0"


def found(sheets: Any = SHEETS) -> list[Advisory]:
    return advisories(sheets, workload="encoder", source=SOURCE)


def test_advisories__workbook__problems_that_suggest_something_with_the_rows_of_their_sheets() -> (
    None
):
    assert [(one.category, one.evidence) for one in found()] == [
        ("Byte Alignment Analysis", {"count": 2, "op": "hcom_allReduce__1"}),
        ("Operator Dynamic Shape Issues", {}),
        ("Cube Operator Perf Analysis", {"count": 1, "op": "MatMulV3_7"}),
        # Excel allows 31 characters in the name of a sheet.
        ("OPERATOR SEQUENCE ANALYSIS BASED ON MTE BOUND", {"count": 1}),
    ]
    assert (found()[0].description, found()[0].suggestion) == (
        "2 collectives are not aligned.",
        "1. Align them.",
    )


@pytest.mark.parametrize(
    "sheets", [{}, {"problems": []}, {"problems": [("a", "b")]}, {"Sheet1": [HEADER]}], ids=["none", "empty", "other", "name"]
)  # fmt: skip
def test_advisories__workbook_of_another_form__is_refused(sheets: Any) -> None:
    with pytest.raises(ValueError, match="no column 'category'"):
        found(sheets)


def test_advisories__short_rows_and_no_problems__nothing() -> None:
    assert found({"problems": [HEADER]}) == []
    assert found({"problems": [HEADER, ("Packet Analysis",), ()]}) == []


@pytest.mark.parametrize(
    ("category", "rules"),
    [
        ("AICPU Issues", ["ops.ai_cpu"]),
        ("Packet Analysis", ["communication.small_packets"]),
        # As msprof-analyze 26.2 names it in a folder of several ranks.
        (
            "RANK 0 operator dynamic shape issues",
            ["graph.recompiles", "graph.op_compiled", "graph.compiled_again"],
        ),
        ("Byte Alignment Analysis", []),
    ],
)
def test_advisories__problem_that_rules_of_perfgate_detect_too__names_them(
    category: str, rules: list[str]
) -> None:
    (advisory,) = found({"problems": [HEADER, (category, "described", "suggested")]})
    assert advisory.rules == rules


def test_rules__all__are_rules_of_the_catalogue() -> None:
    assert {rule for rules in RULES.values() for rule in rules} <= set(RULE_ADVICE)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Make a folder that looks like one of Ascend's profiler."""
    folder = tmp_path / "rank0_ascend_pt"
    (folder / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    (folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").write_text("Name\n")
    return folder


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a program that stands for msprof-analyze on the path; ``arguments`` of it are those of the command line."""

    def install(body: str) -> None:
        program = tmp_path / "bin" / "msprof-analyze"
        program.parent.mkdir()
        program.write_text(
            f"#!{sys.executable}\nimport os, sys, time\nout = sys.argv[sys.argv.index('-o') + 1]\n{body}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    return install


WRITE = """
from openpyxl import Workbook
book = Workbook()
book.remove(book.active)
for title, rows in SHEETS.items():
    sheet = book.create_sheet(title)
    for row in rows:
        sheet.append(row)
os.makedirs(os.path.join(out, "log"))
book.save(os.path.join(out, "log", "mstt_advisor_20260101000000.xlsx"))
sys.exit(0)
"""


def ask(recording: Path) -> tuple[list[str], list[str], list[str]]:
    said: list[str] = []
    advised = advise_profile(recording, "encoder", said.append)
    return (
        [advisory.category for advisory in advised.found],
        worded(advised.warnings),
        said,
    )


def test_advise__workbook_beside_the_report__its_problems(
    recording: Path, tool: Any
) -> None:
    pytest.importorskip("openpyxl")
    tool(f"SHEETS = {SHEETS!r}\n{WRITE}")
    categories, warnings, said = ask(recording)
    assert categories[0] == "Byte Alignment Analysis"
    assert (len(categories), warnings, said) == (
        4,
        [],
        ["running msprof-analyze advisor"],
    )


def test_advise__packed_recording_of_a_run__unpacked_and_advised_on(
    recording: Path, tool: Any, tmp_path: Path
) -> None:
    pytest.importorskip("openpyxl")
    tool(f"SHEETS = {SHEETS!r}\n{WRITE}")
    with zipfile.ZipFile(tmp_path / "trace.zip", "w") as packed:
        packed.write(
            recording / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv",
            "ASCEND_PROFILER_OUTPUT/kernel_details.csv",
        )
    trace = Artifact(
        name="trace",
        kind="trace",
        path="trace.zip",
        bytes=1,
        sha256="0" * 64,
        workload="decoder",
    )
    found = advise_run(make_run(artifacts=[trace, trace]), tmp_path, lambda _: None)
    assert [(one.workload, one.category) for one in found.found[:1]] == [
        ("decoder", "Byte Alignment Analysis")
    ]
    assert len(found.found) == 4  # each problem once a workload


def test_advise__recording_named_from_here__the_tool_finds_it_from_anywhere(
    recording: Path, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool("print('seen', os.path.isdir(sys.argv[sys.argv.index('-d') + 1]))")
    monkeypatch.chdir(recording.parent)
    _, (warning,), _ = ask(Path(recording.name))
    assert warning.endswith("seen True")


@pytest.mark.parametrize(
    ("body", "warning"),
    [
        ("print('no optimization suggestions')", None),
        (
            "print('a table is damaged'); sys.exit(0)",
            "msprof-analyze advisor gave no result: a table is damaged",
        ),
        ("sys.exit(3)", "msprof-analyze advisor gave no result: it printed nothing"),
    ],
)
def test_advise__no_workbook__what_it_printed_counts_and_not_its_exit_code(
    recording: Path, tool: Any, body: str, warning: str | None
) -> None:
    tool(body)
    assert ask(recording)[:2] == ([], [warning] if warning else [])


def test_advise__damaged_workbook__a_warning(recording: Path, tool: Any) -> None:
    pytest.importorskip("openpyxl")
    tool(
        "os.makedirs(os.path.join(out, 'log'))\nopen(os.path.join(out, 'log', 'mstt_advisor_1.xlsx'), 'w').write('no zip')"
    )
    categories, (warning,), _ = ask(recording)
    assert (
        categories,
        warning.startswith("msprof-analyze advisor: its workbook could not be read"),
    ) == ([], True)


def test_advise__tool_that_does_not_end__is_ended_with_what_it_started(
    recording: Path, tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(msprof_analyze, "TIME_LIMIT", 4.0)
    tool(
        f"pid = os.fork()\nopen({str(tmp_path / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')\ntime.sleep(600)"
    )
    _, (warning,), _ = ask(recording)
    assert warning == "msprof-analyze advisor gave no result: it was not done after 4 s"
    assert (
        left_in_the_end(
            lambda: [
                pid for pid in (tmp_path / "pids").read_text().split() if _runs(pid)
            ]
        )
        == []
    )


def _runs(pid: str) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except OSError:
        return False


def test_advise__tool__sees_neither_secrets_nor_the_network(
    recording: Path, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    tool("print('seen', os.environ.get('SOME_TOKEN'), os.environ['https_proxy'])")
    _, (warning,), _ = ask(recording)
    assert warning.endswith("seen None http://127.0.0.1:9")


def test_advise__recording_too_large__not_asked(
    recording: Path, tool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(msprof_analyze, "MOST_BYTES", 3)
    tool("raise SystemExit")
    _, (warning,), _ = ask(recording)
    assert "more than it can read in time" in warning


def test_advise__no_folder_of_ascend__nothing_is_asked(
    tmp_path: Path, tool: Any
) -> None:
    tool("raise SystemExit")
    (tmp_path / "trace.json").write_text("[]")
    assert ask(tmp_path / "trace.json") == ([], [], [])
    assert ask(tmp_path / "bin") == ([], [], [])


def test_advise__tool_not_installed__a_word_in_passing_and_no_warning(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(msprof_analyze, "TOOL", "no-such-tool")
    assert ask(recording) == (
        [], [], ["no-such-tool is not installed, so its advisor was not run (pip install no-such-tool)"]
    )  # fmt: skip
