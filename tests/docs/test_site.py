"""The documentation site, built as `make docs` builds it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import ROOT, pages

MKDOCS = ROOT / "build" / "docs" / "bin" / "mkdocs"


@pytest.mark.slow
@pytest.mark.skipif(not MKDOCS.exists(), reason="`make docs` installs mkdocs")
def test_site__built_strictly__every_page_searchable_and_nothing_fetched_from_elsewhere(tmp_path: Path) -> None:
    environment = {"NO_MKDOCS_2_WARNING": "1", "PERFGATE_SITE_REPOSITORY": "https://forge.example/team/perfgate"}
    done = subprocess.run(
        [MKDOCS, "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    html = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("*.html")}
    assert {page.replace(".md", ".html") for page in pages()} | {"changelog.html", "security.html"} <= html.keys()
    fetched = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"?https?:[^>]*>")
    assert {tag for text in html.values() for tag in fetched.findall(text) if "canonical" not in tag} == set()
    index = json.loads((tmp_path / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert any("TransData" in entry["text"] for entry in index["docs"] if entry["location"].startswith("checklist"))
    # A file that is no page lies in the repository, at the release.
    assert 'href="https://forge.example/team/perfgate/blob/v' in html["commands.html"]
    assert "completion fish | source" in html["commands.html"]
    assert "<!-- test:" not in "".join(html.values())


def test_site__navigation__is_the_index() -> None:
    """The hook reads the tables of docs/index.md: each row has a question and one link to a page."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    rows = [line for line in index.splitlines() if line.startswith("| ") and not line.startswith("| question")]
    assert [row for row in rows if not re.fullmatch(r"\| .+ \| \[[^\]]+\]\(\S+\.md\) \|", row)] == []
    assert len(rows) > 20


def test_site__pushed_by_the_release_workflow__replaces_the_branch(tmp_path: Path) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))
    script = workflow["jobs"]["site"]["steps"][-1]["run"]
    origin, settings = tmp_path / "origin.git", tmp_path / "gitconfig"
    subprocess.run(["git", "init", "--quiet", "--bare", origin], check=True)
    settings.write_text(f'[url "{origin}"]\n  insteadOf = https://forge.example/team/perfgate\n')
    environment = {
        **os.environ,
        "GITHUB_SERVER_URL": "https://forge.example",
        "GITHUB_REPOSITORY": "team/perfgate",
        "GITHUB_REF_NAME": "v1.2.3",
        "TOKEN": "secret",
        "GIT_CONFIG_GLOBAL": str(settings),
    }
    for page in ("old.html", "new.html"):
        site = tmp_path / page / "site"
        site.mkdir(parents=True)
        (site / page).write_text("words")
        subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=site.parent, env=environment, check=True)
    branch = ["git", "-C", origin, "log", "--format=%s", "--name-only", "gh-pages"]
    lines = subprocess.run(branch, check=True, capture_output=True, text=True).stdout.split("\n")
    assert lines == ["Documentation of perfgate v1.2.3", "", ".nojekyll", "new.html", ""]
