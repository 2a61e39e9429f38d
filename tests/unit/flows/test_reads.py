from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfgate.flows.shared.reads import files_named_in_code, like_read_files
from perfgate.git.repository import Repository
from tests.fakes.remote import git


@pytest.mark.parametrize(
    ("path", "text", "named"),
    [
        ("model.py", 'open("docs/x.md")', True),
        ("model.py", "ROOT / 'docs' / 'x.md'", True),
        ("model.py", 'NAME = "x.md"', True),
        ("model.py", 'Path("docs").iterdir()', True),
        ("model.py", 'open(f"docs/{name}.md")', True),
        ("model.py", 'open("docs/" + name)', True),
        ("model.py", 'ROOT.rglob("*.md")', True),
        ("model.py", 'load(a,"b c","docs/x.md")', True),
        ("conf/app.yaml", "prompt: docs/x.md", True),
        ("conf/app.yaml", "files:\n  - docs/x.md\n", True),
        ("conf/app.json", '{"prompt": "docs/x.md"}', True),
        ("model.py", "# see docs/x.md", False),
        ("model.py", 'raise ValueError("see docs/x.md for the sizes")', False),
        ("model.py", 'batch["docs"]', False),
        ("model.py", 'PAGE = "https://pytorch.org/docs/stable/x.html"', False),
        ("model.py", 'open("docs/y.md")', False),
        ("model.py", 'open("docs_of_today/y.md")', False),
        ("setup.py", 'open("docs/x.md")', False),
        ("pyproject.toml", 'readme = "docs/x.md"', False),
        (".github/labels.yml", "docs: docs/x.md", False),
        ("docs/other.md", '"docs/x.md"', False),
    ],
)
def test_files_named_in_code__string_of_a_commit__path_or_not(
    tmp_path: Path, path: str, text: str, named: bool
) -> None:
    for name, content in {path: text, "docs/x.md": "words"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "-qm", "one")
    commit = git(tmp_path, "rev-parse", "HEAD")
    found = files_named_in_code(["docs/x.md", "CHANGELOG"], Repository(tmp_path), [commit])
    assert found == ({"docs/x.md"} if named else set())


def test_like_those__same_folder_and_ending__may_be_found_by_a_pattern() -> None:
    files = ["docs/system.md", "docs/other.md", "docs/other.png", "docs/guide/other.md", "README.md"]
    assert like_read_files(files, ["docs/system.md"]) == {"docs/system.md", "docs/other.md"}


def test_like_those__name_that_no_list_can_hold__may_be_read() -> None:
    latin_1 = os.fsdecode("docs/größe.md".encode("latin-1"))
    assert like_read_files([latin_1, "docs/other.md"], ["prompts/system.md"]) == {latin_1}
