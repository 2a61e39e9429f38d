"""Instructions rot unless a test reads them: the README's commands, snippets, tables and targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import yaml

from perfgate.catalogue.lookup import CARDS
from perfgate.cli import commands
from perfgate.cli.main import cli
from perfgate.config import parse_config
from perfgate.plugins import member_names
from tests.ci_schema import assert_valid

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
QUICK_STARTS = {
    name: (ROOT / "docs" / f"quickstart-{name}.md").read_text(encoding="utf-8")
    for name in ("github", "gitlab", "local")
}
COMMAND_ROW = r"^\| `perfgate ([a-z]+)` \|"


def snippets(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def test_readme__length__one_sitting() -> None:
    assert len(README.splitlines()) <= 150


def test_readme__picture__is_there_and_small() -> None:
    (picture,) = re.findall(r"^!\[.+\]\((.+)\)$", README, flags=re.MULTILINE)
    assert 10_000 < (ROOT / picture).stat().st_size < 150_000


def test_readme__commands_named__exist() -> None:
    named = set(re.findall(r"`perfgate ([a-z]+)", README))
    assert named <= set(member_names(commands)), named - set(member_names(commands))


def test_commands_page__its_table__names_every_command() -> None:
    table = set(re.findall(COMMAND_ROW, COMMANDS, flags=re.MULTILINE))
    assert table == set(member_names(commands))


def test_commands_page__the_table_of_json__names_every_command_that_prints_it() -> None:
    section = COMMANDS.partition("## JSON for programs")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.+?) \|", section, flags=re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(.+?)`", cell)} == set(_printing_json(cli))


def _printing_json(group: click.Group, *path: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _printing_json(command, *path, name)
        elif command is not None and any("--json" in option.opts for option in command.params):
            yield " ".join((*path, name))


def test_readme__checklist__every_step_of_the_catalogue() -> None:
    for text in (README, (ROOT / "docs" / "checklist.md").read_text(encoding="utf-8")):
        rows = re.findall(r"^\| (\d+) \|", text, flags=re.MULTILINE)
        assert [int(number) for number in rows] == sorted(CARDS)


def test_readme__traps__as_many_as_the_page_has() -> None:
    page = (ROOT / "docs" / "traps.md").read_text(encoding="utf-8")
    caught = int(re.findall(r"^## Caught \((\d+)\)", page, flags=re.MULTILINE)[0])
    not_caught = len(re.findall(r"^\|.*\(\.\./tests/traps/", page.partition("## Not caught")[2], flags=re.MULTILINE))
    assert f"[{caught} traps](docs/traps.md) are caught, {not_caught} are not" in README


def test_readme__make_targets_named__exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", README, flags=re.MULTILINE)) <= targets


def test_readme__workload_snippet__is_python() -> None:
    (workload,) = snippets("python")
    compile(workload, "README.md", "exec")


def test_readme__config_snippet__is_accepted() -> None:
    (config,) = snippets("toml")
    (reference,) = parse_config(config, ROOT / "perfgate.toml").references
    assert (reference.file, reference.attribute) == ("perf/workload.py", "encoder")


def test_readme__ci_snippet__is_valid_and_short(tmp_path: Path) -> None:
    (workflow,) = snippets("yaml")
    assert len(workflow.splitlines()) <= 10
    file = tmp_path / "snippet.yml"
    file.write_text(workflow, encoding="utf-8")
    assert_valid("vendor.github-workflows", file)


def test_readme__ci_snippets__name_one_commit_and_what_the_called_files_take() -> None:
    """The two quick starts run what the shell block says (tests/docs)."""
    (github,) = (yaml.safe_load(text) for text in snippets("yaml"))
    (gitlab,) = (yaml.safe_load(text) for text in snippets("yaml", QUICK_STARTS["gitlab"]))
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


def test_readme__shell_snippet__is_what_the_quick_starts_run() -> None:
    (script,) = snippets("sh")
    for line in (line.partition("  ")[0].strip() for line in script.splitlines()):
        assert any(f"\n{line}\n" in page for page in QUICK_STARTS.values()), line


CHINESE = (ROOT / "docs" / "README.zh.md").read_text(encoding="utf-8")


def test_chinese_readme__its_code_and_configuration__are_valid() -> None:
    assert snippets("python", CHINESE) == snippets("python")
    (config,) = snippets("toml", CHINESE)
    assert parse_config(config, ROOT / "perfgate.toml").report.language == "zh"


def test_chinese_readme__commands__are_those_of_the_english_page() -> None:
    rows = [re.findall(COMMAND_ROW, text, flags=re.MULTILINE) for text in (CHINESE, COMMANDS)]
    assert rows[0] == rows[1]


def test_chinese_readme__checklist__every_step_of_the_catalogue() -> None:
    rows = re.findall(r"^\| (\d+) \|", CHINESE, flags=re.MULTILINE)
    assert [int(number) for number in rows] == sorted(CARDS)
