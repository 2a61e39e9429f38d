"""Instructions rot unless a test reads them: the README's commands, snippets, tables and targets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from perfgate.cli import commands
from perfgate.config import parse_config
from perfgate.plugins import member_names

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def test_readme__commands_named__exist() -> None:
    named = set(re.findall(r"`perfgate ([a-z]+)", README))
    assert named <= set(member_names(commands)), named - set(member_names(commands))


def test_readme__commands_there_are__named() -> None:
    table = set(re.findall(r"^\| `perfgate ([a-z]+)` \|", README, flags=re.MULTILINE))
    assert table == set(member_names(commands))


def test_readme__make_targets_named__exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", README, flags=re.MULTILINE)) <= targets


def test_readme__workload_snippet__is_python() -> None:
    (workload,) = snippets("python")
    compile(workload, "README.md", "exec")


def test_readme__config_snippets__are_accepted() -> None:
    first, *further = snippets("toml")
    (reference,) = parse_config(first, ROOT / "perfgate.toml").workloads
    assert (reference.file, reference.attribute) == ("perf/workload.py", "encoder")
    for added in further:
        assert parse_config(first + added, ROOT / "perfgate.toml").budgets


@pytest.mark.parametrize(("number", "schema"), [(0, "vendor.github-workflows"), (1, "vendor.gitlab-ci")])
def test_readme__ci_snippets__are_valid(tmp_path: Path, number: int, schema: str) -> None:
    file = tmp_path / "snippet.yml"
    file.write_text(snippets("yaml")[number], encoding="utf-8")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    if schema == "vendor.gitlab-ci":
        command += ["--data-transform", "gitlab-ci"]
    done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme__ci_snippets__name_one_commit_and_what_the_called_files_take() -> None:
    """The two quick starts run what the shell block says (tests/docs)."""
    github, gitlab = (yaml.safe_load(text) for text in snippets("yaml"))
    (job,) = github["jobs"].values()
    (include,) = gitlab["include"]
    called = yaml.safe_load((ROOT / ".github" / "workflows" / "gate.yml").read_text())
    template = yaml.safe_load((ROOT / "templates" / "perfgate.yml").read_text().partition("\n---\n")[0])
    package = "git+https://github.com/OWNER/perfgate@COMMIT"
    assert job["uses"] == "OWNER/perfgate/.github/workflows/gate.yml@COMMIT"
    assert set(job["with"]) <= set(called[True]["workflow_call"]["inputs"])  # YAML 1.1 reads `on` as true
    assert include["remote"] == "https://raw.githubusercontent.com/OWNER/perfgate/COMMIT/templates/perfgate.yml"
    assert (job["with"]["package"], include["inputs"]["package"]) == (package, package)
    assert set(include["inputs"]) <= set(template["spec"]["inputs"])


def test_readme__shell_snippets__are_what_the_quick_starts_run() -> None:
    (commands,) = snippets("sh")
    pages = [(ROOT / "docs" / f"quickstart-{forge}.md").read_text() for forge in ("github", "gitlab")]
    for line in (line.partition("  ")[0].strip() for line in commands.splitlines()):
        assert any(f"\n{line}\n" in page for page in pages), line


def test_readme__links_into_the_repository__lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_readme__ci_snippets__short_enough_to_read() -> None:
    github, gitlab = snippets("yaml")
    assert len(github.splitlines()) <= 10
    assert len(gitlab.splitlines()) <= 8


CHINESE = (ROOT / "docs" / "README.zh.md").read_text(encoding="utf-8")


def test_chinese_readme__its_code_and_configuration__are_valid() -> None:
    (workload,) = re.findall(r"^```python\n(.*?)^```", CHINESE, flags=re.MULTILINE | re.DOTALL)
    assert workload == snippets("python")[0]
    (config,) = re.findall(r"^```toml\n(.*?)^```", CHINESE, flags=re.MULTILINE | re.DOTALL)
    assert parse_config(config, ROOT / "perfgate.toml").report.language == "zh"


def test_chinese_readme__commands__are_those_of_the_english_one() -> None:
    pattern = r"^\| `perfgate ([a-z]+)` \|"
    assert re.findall(pattern, CHINESE, flags=re.MULTILINE) == re.findall(pattern, README, flags=re.MULTILINE)


def test_chinese_readme__links_into_the_repository__lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", CHINESE):
        assert (ROOT / "docs" / target).exists(), target
