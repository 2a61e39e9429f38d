from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from perfgate.config import PathSettings, parse_config
from perfgate.document.decision import Policy
from perfgate.document.message import Message
from perfgate.document.run import Source
from perfgate.judging.gate.paths import always_relevant, files_of_environment, skipped, skipped_because
from perfgate.judging.gate.verdict import exit_code
from perfgate.judging.report.text.messages import word
from perfgate.locale import speaking
from tests.each import each
from tests.wording import text_of

CONFIG = parse_config('project = "a"\nworkload = "perf/w.py:w"\n', Path("/project/perfgate.toml"))


@each(
    "changed, because",
    [
        (["README.md"], "only documentation changed (1 file)"),
        (
            ["README.md", "docs/guide.rst", "models/a/README", "LICENSE.txt", "CHANGELOG.md"],
            "only documentation changed (5 files)",
        ),
        (
            [".github/CODEOWNERS", ".circleci/config.yml", "README.zh.md"],
            "only documentation, CI files, comments or formatting changed (3 files)",
        ),
        (["README.md", "model.py"], None),
        (["prompts/system.md"], None),  # text that a model may read
        (["models/a/NOTES.rst"], None),
        (["docs/conf.py"], None),  # code is imported from anywhere
        (["models/docs/table.json"], None),  # the pattern is anchored
        (["data.csv"], None),
        ([".github/workflows/ci.yml"], None),
        ([".github/actions/setup/action.yml"], None),
        ([".gitlab-ci.yml"], None),
        ([], None),  # nothing changed at all: whoever asks wants it measured
    ],
)
def test_skipped_because__defaults__documentation_and_files_of_other_hosts(changed: list[str], because: str) -> None:
    assert text_of(skipped_because(changed, PathSettings(), always=())) == (because or "")


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        (["model.py"], "only comments or formatting changed (1 file)"),
        (["model.py", "README.md"], "only documentation, CI files, comments or formatting changed (2 files)"),
        (["model.py", "data.csv"], None),
        (["model.py", "perf/w.py"], None),
    ],
)
def test_skipped_because__same_code__skipped_unless_it_says_what_is_measured(changed: list[str], because: str) -> None:
    same = {"model.py", "perf/w.py"}
    assert text_of(skipped_because(changed, PathSettings(), always={"perf/w.py"}, same_code=same.issuperset)) == (
        because or ""
    )


@pytest.mark.parametrize(
    ("ignore", "measured"),
    [
        (None, True),
        (["*.md"], True),
        (["docs/*"], True),
        (["docs/"], True),
        (["/docs/system.md"], False),  # its author means this very file
        ([], True),
    ],
)
def test_skipped_because__file_that_may_be_read__counts_unless_a_pattern_names_it(
    ignore: list[str] | None, measured: bool
) -> None:
    paths = PathSettings() if ignore is None else PathSettings(ignore=ignore)
    read = {"docs/system.md"}.intersection
    assert (skipped_because(["docs/system.md"], paths, read=read, always=()) is None) is measured
    assert skipped_because(["docs/system.md"], PathSettings(relevant=["*.py"]), read=read, always=()) is None
    assert skipped_because(["docs/other.md", "README.md"], PathSettings(), read=read, always=()) is not None


def test_skipped_because__code_changed__nobody_looks_for_what_is_read() -> None:
    def read(files: Sequence[str]) -> list[str]:
        raise AssertionError(files)

    assert skipped_because(["model.py", "README.md"], PathSettings(), read=read, always=()) is None
    assert skipped_because(["model.py"], PathSettings(), read=read, same_code=lambda _: True, always=()) is not None


@pytest.mark.parametrize(
    ("relevant", "ignore", "changed", "because"),
    [
        (["*.py"], [], ["weights.bin"], "nothing relevant changed: 1 file, by the rule [paths] relevant"),
        (["*.py"], ["tests/"], ["tests/test_a.py"], "nothing relevant changed: 1 file, by the rule tests/"),
        (["*.py"], ["tests/"], ["src/tests.py"], None),
        (["*"], ["docs/**", "!docs/*.py"], ["docs/conf.py"], None),
        (["*"], [], ["README.md"], None),
    ],
)
def test_skipped_because__own_patterns__as_git_reads_them(
    relevant: list[str], ignore: list[str], changed: list[str], because: str
) -> None:
    assert text_of(skipped_because(changed, PathSettings(relevant=relevant, ignore=ignore), always=())) == (
        because or ""
    )


def test_skipped_because__what_says_what_is_measured__always_counts() -> None:
    everything = PathSettings(ignore=["*"])
    always = always_relevant(CONFIG, "models/a")
    assert always == {"models/a/perfgate.toml", "models/a/perf/w.py"}
    assert skipped_because(["models/a/perf/w.py"], everything, always=always) is None
    assert skipped_because(["models/a/perfgate.toml"], everything, always=always) is None
    assert skipped_because(["perfgate.toml"], everything, always=always) is not None


@pytest.mark.parametrize(
    ("setup", "counting"),
    [
        ("pip install -r docs/requirements.txt", {"models/a/docs/requirements.txt", "models/a/req/x.in"}),
        ("", set()),  # both sides have the same packages
    ],
)
def test_files_of_environment__what_the_setup_installs_by__counts_despite_the_filter(
    setup: str, counting: set[str]
) -> None:
    config = parse_config(
        f'workload = "perf/w.py:w"\n[measure]\nsetup = "{setup}"\nrequirements = ["docs/requirements.txt", "req/*.in"]\n'
        '[paths]\nignore = ["docs/**", "/models/a/req/named.in"]\n',
        Path("/project/perfgate.toml"),
    )
    changed = ["docs/requirements.txt", "models/a/docs/requirements.txt", "models/a/req/x.in"]
    changed += ["models/a/req/deep/x.in", "models/a/req/named.in"]
    files = files_of_environment(changed, config, "models/a")
    assert files == counting
    because = skipped_because(changed, PathSettings(relevant=["src/"]), always=files)
    assert (because is None) == bool(counting)


def test_skipped__decision__exit_0_the_rule_in_the_reasons_and_in_chinese() -> None:
    because = Message("gate.nothing-changed", {"count": 2, "rules": ["*.md"]})
    decision = skipped(
        because,
        config=CONFIG,
        policy=Policy(),
        base=Source(commit="a" * 40, branch="main"),
        head=Source(commit="b" * 40),
        chosen_because=Message("gate.base-ancestor", {"revision": "main"}),
    )
    assert (decision.verdict, decision.reasons, exit_code(decision)) == ("SKIPPED", [because], 0)
    assert (text_of(decision.sides.base.chosen_because), decision.sides.base.branch) == (
        "main, an ancestor of head",
        "main",
    )
    with speaking("zh"):
        assert word(because) == "没有相关改动：2 个文件，依据规则 *.md"
