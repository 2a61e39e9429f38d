"""Which changed files a trial may show to be unread, and which are data whatever it shows."""

from __future__ import annotations

from pathlib import Path

from perfgate.config import PathSettings
from perfgate.flows.check.changed_files import ChangedFiles, changed_files
from perfgate.judging.gate.paths import excluded_files, files_taken_in


def sorted_files(folder: Path, *changed: str, paths: PathSettings) -> ChangedFiles:
    """Sort files that head adds to an empty base."""
    for side in ("base", "head"):
        (folder / side).mkdir()
    for file in changed:
        (folder / "head" / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / "head" / file).write_text("words")
    return changed_files(
        folder / "base",
        folder / "head",
        changed,
        always=(),
        excluded=excluded_files(changed, paths),
        taken_in=files_taken_in(changed, paths),
    )


def test_changed_files__texts__documents_unless_the_filter_takes_them_in(tmp_path: Path) -> None:
    paths = PathSettings(ignore=["/docs/**", "!/docs/prompts/*.md"])
    changed = sorted_files(tmp_path, "docs/guide.txt", "docs/prompts/system.md", "notes.md", "words.json", paths=paths)
    assert changed.documents == ["docs/guide.txt", "notes.md"]
    assert changed.others == ["docs/prompts/system.md", "words.json"]
    assert not changed.can_be_seen


def test_changed_files__default_filter__texts_for_people_are_documents(tmp_path: Path) -> None:
    changed = sorted_files(tmp_path, "README.md", "docs/a.md", "models/card.md", paths=PathSettings())
    assert changed.documents == ["README.md", "docs/a.md", "models/card.md"]
    assert changed.can_be_seen
    assert changed.one_sided == changed.every
