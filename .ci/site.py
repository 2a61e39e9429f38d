"""Hooks of the documentation site (mkdocs.yml): the pages of docs/ as they are, which read well on a forge too.

The navigation is docs/index.md. Pages of the repository's root get a place in the site; links to other files lead to the
repository, or are text if the build knows none.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[1]
# Pages outside docs/ and their names in the site, where README.md would be the home page.
OUTSIDE = {
    "README.md": "readme-en.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_INSIDE = {name: path for path, name in OUTSIDE.items()}
_LINK = re.compile(
    r"^```.*?^```$|\[(?P<text>(?:`[^`\n]*`|[^\[\]`])*)\]\((?P<target>[^)\s]+)\)|`[^`\n]*`",
    re.MULTILINE | re.DOTALL,
)
_ROW = re.compile(r"^\| .+ \| \[(?P<title>[^\]]+)\]\((?P<page>\S+\.md)\)", re.MULTILINE)
_SETTING_OF_A_TEST = re.compile(r"^<!-- test: .+ -->\n", re.MULTILINE)


def on_config(config: Any) -> Any:
    config.mdx_configs["toc"]["slugify"] = slugify(
        case="lower"
    )  # the anchors of forges
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## (.+)\n", index, flags=re.MULTILINE)
    config.nav = [
        {"Pages": "index.md"},
        {"中文": sorted(path.name for path in (ROOT / "docs").glob("*.zh.md"))},
        *(
            {
                heading: [
                    {_capital(row["title"]): _in_site(f"docs/{row['page']}")}
                    for row in _ROW.finditer(rows)
                ]
            }
            for heading, rows in zip(parts[::2], parts[1::2])
        ),
    ]
    return config


def on_files(files: Any, config: Any) -> Any:
    for path, name in OUTSIDE.items():
        files.append(
            File.generated(
                config, name, content=(ROOT / path).read_text(encoding="utf-8")
            )
        )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001 - named by mkdocs
    folder = posixpath.dirname(
        _INSIDE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    )
    repository = config.extra["repository"]

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None and not match[0].startswith("```"):
            return match[0].replace(
                r"\|", "|"
            )  # which forges need in a table, and mkdocs would show
        if target is None or re.match(r"\w+:|#", target):
            return match[0]
        path, _, heading = target.partition("#")
        path = posixpath.normpath(posixpath.join(folder, path))
        anchor = f"#{heading}" if heading else ""
        if (name := _in_site(path)) is not None:
            return f"[{match['text']}]({name}{anchor})"
        return (
            f"[{match['text']}]({repository}/blob/v{_version()}/{path}{anchor})"
            if repository
            else match["text"]
        )

    return _LINK.sub(link, _SETTING_OF_A_TEST.sub("", markdown))


def _in_site(path: str) -> str | None:
    """The name in the site of a path in the repository; None for a file that is no part of it."""
    path = posixpath.normpath(path)
    return OUTSIDE.get(path) or (
        path.removeprefix("docs/") if path.startswith("docs/") else None
    )


def _capital(title: str) -> str:
    return (
        title
        if title.endswith(".toml")
        else title[:1].upper() + title[1:].removesuffix(".md")
    )


def _version() -> str:
    text = (ROOT / "perfgate" / "version.py").read_text(encoding="utf-8")
    return re.findall(r'__version__ = "(.+)"', text)[0]
