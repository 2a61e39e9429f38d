"""Gate mistakes as pull requests make them: is the verdict right, and is the line that
it names one of the change's?

    python benchmarks/gate/mistakes/gate_mistakes.py --out mistakes.jsonl
    python benchmarks/gate/mistakes/gate_mistakes.py --only 'decoder/*' -- --steps 4

Every gate is a whole `perfgate check` in a git repository of its own. One line of JSON
a gate goes to --out as it ends. ``unchanged`` gates each project against a commit that
adds an unused function. The exit code is 0 if every mistake fails or warns and every
unchanged project passes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatchcase
from pathlib import Path

from mistakes import MISTAKES, Edit, Mistake

PROJECTS = Path(__file__).parent / "projects"
UNUSED = "def unused():\n    return 1\n\n\n"


def unchanged(project: Path) -> Mistake:
    """A function that nobody calls, before the first class of the model: the workload
    file is no part of what is judged.
    """
    for path in sorted(project.glob("*.py")):
        first = re.search(r"^class .*\n", path.read_text(), re.MULTILINE)
        if first and path.name != "perf.py":
            return Mistake(
                project.name,
                "unchanged",
                False,
                (Edit(path.name, first[0], UNUSED + first[0]),),
            )
    raise LookupError(f"{project} has no class outside perf.py")


UNCHANGED = tuple(unchanged(project) for project in sorted(PROJECTS.iterdir()))
SETTINGS = 'project = "{0}"\ndevice = "cpu"\nworkload = "perf.py:{1}"\n'
# A check whose pairs end at once: the verdict is that of the counters, and of times
# nothing is known.
COUNTS = """
import sys
from pathlib import Path

from perfgate.flows.check.check import check_change
from perfgate.cli.progress import TerminalProgress
from perfgate.flows.shared.options import CheckOptions
from perfgate.judging.gate.verdict import exit_code

options = CheckOptions(
    out=Path(sys.argv[1]), base="HEAD~1", always=True, steps=(4,), checklist_budget=0.0, cost=False, budgets=0.01,
    decided=lambda *_: True,
)
with TerminalProgress() as progress:
    decision = check_change(Path.cwd(), options, progress)
sys.exit(exit_code(decision))
"""
PLACE = re.compile(r"\b([a-z_]+\.py):(\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="PATTERN",
        help="PROJECT/NAME, or a pattern of it",
    )
    parser.add_argument("--out", type=Path, default=Path("perfgate-out/mistakes.jsonl"))
    parser.add_argument(
        "--keep", type=Path, help="keep each gate's output in this folder"
    )
    parser.add_argument(
        "--counts",
        action="store_true",
        help="counters alone, which need no quiet machine",
    )
    parser.add_argument(
        "arguments", nargs="*", help="further arguments of perfgate check, after --"
    )
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    patterns = options.only or ["*"]
    right, records = True, list[dict[str, object]]()
    with options.out.open("a", encoding="utf-8") as out:
        for change in (*MISTAKES, *UNCHANGED):
            if not any(
                fnmatchcase(f"{change.project}/{change.name}", pattern)
                for pattern in patterns
            ):
                continue
            with tempfile.TemporaryDirectory(prefix="perfgate-mistake-") as scratch:
                record = gate(change, Path(scratch), options)
            print(json.dumps(record), file=out, flush=True)
            line = (
                "no line"
                if record["line"] is None
                else "right line"
                if record["line"]
                else "wrong line"
            )
            print(
                f"{record['change']:36} {record['verdict']:12} {record['seconds']:6.1f} s  {line:10}  {record['title']}",
                flush=True,
            )
            records.append(record)
            right &= record["verdict"] in (
                ("PASS",) if change.name == "unchanged" else ("FAIL", "WARN")
            )
    asked = [record for record in records if record["remedy"] is not None]
    if asked:
        found = sum(record["verdict"] in ("FAIL", "WARN") for record in asked)
        titled, advised = (
            sum(record[key] is True for record in asked)
            for key in ("line_in_title", "remedy")
        )
        print(
            f"of {len(asked)}: {found} found, {titled} with a changed line in the title, {advised} with the remedy"
        )
    return 0 if right else 1


def gate(
    change: Mistake, scratch: Path, options: argparse.Namespace
) -> dict[str, object]:
    """Gate one change; ``line`` says whether the title or the first cause names a line
    that the change touched.
    """
    repository, out = scratch / change.project, scratch / "out"
    touched = plant(change, repository)
    started = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "perfgate",
        "check",
        "--base",
        "HEAD~1",
        "--always",
        "--out",
        str(out),
    ]
    if options.counts:
        command = [sys.executable, "-c", COUNTS, str(out)]
    command += options.arguments
    environment = {**os.environ, "PERFGATE_STORE": str(scratch / "store.db")}
    done = subprocess.run(
        command,
        cwd=repository,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    decision = (
        json.loads((out / "decision.json").read_text())
        if (out / "decision.json").exists()
        else {}
    )
    measured = decision.get("measured", {})
    comment = (
        (out / "comment.md").read_text()
        if (out / "comment.md").exists()
        else done.stderr
    )
    if options.keep and out.exists():
        shutil.copytree(
            out, options.keep / change.project / change.name, dirs_exist_ok=True
        )
    first = comment.partition("<details")[0]
    named = {(file, int(line)) for file, line in PLACE.findall(first)}
    title = next(
        (line for line in comment.splitlines() if line.startswith("## ")),
        comment.strip()[-300:],
    )
    in_title = PLACE.findall(title)
    return {
        "change": f"{change.project}/{change.name}",
        "counted": change.counted,
        "verdict": decision.get("verdict", "none"),
        "exit_code": done.returncode,
        "seconds": round(seconds, 1),
        "pairs": measured.get("pairs"),
        "waited": measured.get("waited"),
        "line": bool(named & touched) if named else None,
        "named": sorted(f"{file}:{line}" for file, line in named),
        "touched": sorted(f"{file}:{line}" for file, line in touched),
        "line_in_title": bool(in_title)
        and (in_title[0][0], int(in_title[0][1])) in touched,
        "remedy": re.search(change.remedy, first) is not None
        if change.remedy
        else None,
        "title": title,
    }


def plant(
    change: Mistake, repository: Path, settings: str = SETTINGS
) -> set[tuple[str, int]]:
    """Commit the project, then the change. Return the lines that it added, by file and
    number.
    """
    shutil.copytree(PROJECTS / change.project, repository)
    workload = re.search(
        r"^(\w+) = Workload", (repository / "perf.py").read_text(), re.MULTILINE
    )
    assert workload is not None, change.project
    (repository / "perfgate.toml").write_text(
        settings.format(change.project, workload[1])
    )
    git(repository, "init", "--quiet", "--initial-branch", "main")
    commit(repository, "base")
    for edit in change.edits:
        path = repository / edit.file
        source = path.read_text()
        assert source.count(edit.old) == 1, (change.name, edit.old)
        path.write_text(source.replace(edit.old, edit.new))
    commit(repository, change.name)
    touched, file = set(), ""
    for line in git(repository, "diff", "--unified=0", "HEAD~1", "HEAD").splitlines():
        if line.startswith("+++ b/"):
            file = line.removeprefix("+++ b/")
        if found := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            # Of a deletion the lines around it.
            first, lines = int(found[1]), int(found[2] or 1)
            touched |= {(file, first + number) for number in range(lines or 2)}
    return touched


def commit(repository: Path, message: str) -> None:
    git(repository, "add", ".")
    git(
        repository,
        "-c",
        "user.name=Lab",
        "-c",
        "user.email=lab@example.org",
        "commit",
        "--quiet",
        "--message",
        message,
    )


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(repository), *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
