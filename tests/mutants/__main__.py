"""Draw mutants, find the tests that reach each, run these on it, and print what noticed it (`make mutants`)."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.changes import Mutant, changes_of, probed

ROOT = Path(__file__).parents[2]
# The share of the mutants that comes from some modules: of the sides, those that mention the engine's protocol.
AREAS = (
    (0.5, "perfgate/judging/gate/**/*.py", ""),
    (0.1, "perfgate/conductor/engine.py", ""),
    (0.15, "perfgate/conductor/sides/**/*.py", "Quads"),
    (0.25, "perfgate/flows/publish/*.py", ""),
)
TESTS = (
    *("unit/gate/**/test_*.py", "golden/test_comment_golden.py", "contract/test_producer_contract.py"),
    *(
        f"unit/conductor/test_{name}.py"
        for name in ("turns", "pairs", "resident", "stretches", "foresight", "profiles")
    ),
    *("unit/conductor/test_checklist_turns.py", "unit/conductor/test_compiled_calls.py"),
    *("unit/flows/test_published.py", "end_to_end/test_publish*.py", "end_to_end/test_command*.py"),
    "end_to_end/test_evidence.py",
)
PROBE = '__import__("tests.mutants.recorder").mutants.recorder.reach'


class Copy:
    """A copy of the files that git knows, as they are in the work tree; ``records`` is what its tests recorded."""

    def __init__(self, folder: Path) -> None:
        self.root, self.records = folder / "tree", folder / "records"
        self.records.mkdir()
        (self.records / "current").touch()
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        files = [ROOT / name for name in listed.split("\0") if name]
        for file in [*files, *ROOT.glob("perfgate/trace/scanner/*.so")]:
            target = self.root / file.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)

    def pytest(self, *arguments: str, seconds: float) -> None:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutants.recorder", *arguments]
        with (self.records / "output").open("w") as output:
            subprocess.run(
                ["timeout", "--signal=KILL", str(seconds), *command],
                cwd=self.root,
                env={**os.environ, "PYTHONPATH": str(self.root)},
                stdout=output,
                stderr=output,
                check=False,
            )

    def take(self, name: str) -> list[list]:
        """The recorded lines, which are removed."""
        file = self.records / name
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=180, help="the time of a mutant; its cheapest tests run first")
    options = parser.parse_args()
    mutants = draw(options.count, random.Random(options.seed))
    noticed = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(Path(folder))
        for mutant, tests in zip(mutants, tests_that_reach(copy, mutants)):
            result = result_of(copy, mutant, tests, options.seconds)
            noticed += result.startswith("noticed")
            print(f"{mutant}\n    {result}", flush=True)
    print(f"{noticed} of {len(mutants)} mutants noticed (seed {options.seed})")


def draw(count: int, lot: random.Random) -> list[Mutant]:
    """Draw lines of every area, and one of the changes of each."""
    mutants: list[Mutant] = []
    for share, pattern, text in AREAS:
        changes: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
        for path in sorted(ROOT.glob(pattern)):
            source = path.read_text()
            if text in source:
                for mutant in changes_of(str(path.relative_to(ROOT)), source):
                    changes[mutant.path, mutant.line].append(mutant)
        lines = lot.sample(sorted(changes), round(share * count))
        mutants += [lot.choice(changes[line]) for line in sorted(lines)]
    return mutants


def tests_that_reach(copy: Copy, mutants: Sequence[Mutant]) -> list[list[str]]:
    """The tests of each mutant, cheapest first: all tests run once, with a probe at every mutant instead of a change."""
    numbered: dict[str, dict[int, Mutant]] = defaultdict(dict)
    for number, mutant in enumerate(mutants):
        numbered[mutant.path][number] = mutant
    sources = {path: (copy.root / path).read_text() for path in numbered}
    for path, of_module in numbered.items():
        (copy.root / path).write_text(probed(sources[path], of_module, PROBE))
    files: set[str] = set()
    for pattern in TESTS:
        matching = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob(pattern)}
        assert matching, f"no file is called tests/{pattern}"
        files |= matching
    copy.pytest(*sorted(files), seconds=3600)
    for path, source in sources.items():
        (copy.root / path).write_text(source)
    seconds: dict[str, float] = defaultdict(float)
    failed: set[str] = set()
    for test, duration, has_failed in copy.take("results"):
        seconds[test] += duration
        if has_failed:
            failed.add(test)
    assert seconds, (copy.records / "output").read_text()
    print(f"{len(seconds)} tests in {sum(seconds.values()):.0f} s; fail without a change: {sorted(failed)}", flush=True)
    reaching: list[set[str]] = [set() for _ in mutants]
    for number, test in copy.take("reached"):
        if test in seconds.keys() - failed:
            reaching[number].add(test)
    return [sorted(tests, key=lambda test: (seconds[test], test)) for tests in reaching]


def result_of(copy: Copy, mutant: Mutant, tests: Sequence[str], seconds: float) -> str:
    """Which test notices a mutant, or how many that reach it do not."""
    if not tests:
        return "survived: no test reaches it"
    module = copy.root / mutant.path
    source = module.read_text()
    module.write_text(mutant.applied(source))
    (copy.records / "wanted.json").write_text(json.dumps(tests))
    copy.pytest("-x", *sorted({test.partition("::")[0] for test in tests}), seconds=seconds)
    module.write_text(source)
    results = copy.take("results")
    for test, _, has_failed in results:
        if has_failed:
            return f"noticed by {test}"
    if not results:
        return "noticed: no test can be imported"
    return f"survived {len({test for test, *_ in results})} of the {len(tests)} tests that reach it"


if __name__ == "__main__":
    main()
