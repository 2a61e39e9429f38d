"""``perfgate site``: write the pages of main's history into a folder, for a branch of
pages or any file server.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfgate.config import load_config
from perfgate.document.files import write_atomically, write_text_atomically
from perfgate.document.strict_json import parse_json
from perfgate.errors import DocumentError, StoreError, StoreRefusedError, UsageError
from perfgate.flows.shared.artifacts import kept_reader, open_artifacts
from perfgate.flows.shared.doors import Doors, Progress
from perfgate.flows.shared.site.pages import SitePages, file_addresses
from perfgate.flows.shared.site.read import read_site
from perfgate.flows.shared.store import open_project_store
from perfgate.judging.report.render.site.page import (
    OVERVIEW,
    SiteLinks,
    is_address,
    run_of,
)
from perfgate.judging.store.index import read_log
from perfgate.locale import Language, sentence

NEWEST = 100
# The pages that a site consists of, so that the next one removes those that it no
# longer has.
_LIST_FILE = "site.json"
_MOST_LIST_BYTES = 4 * 1024 * 1024
_FOLDERS = ("series", "runs", "compare")


@dataclass(frozen=True)
class WrittenSite:
    """The numbers of written pages, of removed old pages, of stored runs, and of runs
    with a page.
    """

    pages: int
    removed: int
    runs: int
    run_pages: int


def write_site(
    root: Path,
    out: Path,
    doors: Doors,
    progress: Progress,
    *,
    runs: int = NEWEST,
    language: Language,
) -> WrittenSite:
    """Write every page into ``out``; the newest ``runs`` have a page each.

    In the place of a run that cannot be read stands the reason. Raises UsageError for a
    folder with a page that is not perfgate's, or without a run of main.
    """
    config = load_config(root, environ=doors.environ)
    before = _pages_before(out)
    log = read_log(open_project_store(config, doors.environ), config.project)
    content = read_site(log, config.root, progress, seconds_since_1970=doors.clock())
    addresses = file_addresses(content, newest=runs)
    read_artifacts = kept_reader(open_artifacts(config, doors.environ), config.project)
    links = SiteLinks(written=frozenset(addresses))
    pages = SitePages(content, log.run, language, links, read_artifacts)
    _prepare(out)
    # All pages of both sites until the last one is written: if this ends before, the
    # next call knows them.
    _write_list(out, {*before, *addresses})
    for number, address in enumerate(addresses):
        progress.status(
            sentence(
                "writing page {number} of {pages}",
                number=number + 1,
                pages=len(addresses),
            )
        )
        write_text_atomically(out / address, _page(pages, address, progress))
    removed = sorted(set(before) - set(addresses))
    for address in removed:
        (out / address).unlink(missing_ok=True)
    _write_list(out, addresses)
    page_count = sum(
        address.startswith("runs/") and run_of(address) is not None
        for address in addresses
    )
    return WrittenSite(
        pages=len(addresses),
        removed=len(removed),
        runs=len(content.runs),
        run_pages=page_count,
    )


def _page(pages: SitePages, address: str, progress: Progress) -> str:
    try:
        page = pages.page(address)
    except StoreRefusedError:
        raise  # the next run would wait for the same server
    except StoreError as error:
        progress.note(
            sentence(
                "{address} holds the reason alone: {error}",
                address=address,
                error=error.shown,
            )
        )
        page = pages.unreadable(address, str(error))
    assert page is not None, f"a site has no {address}"
    return page


def _write_list(out: Path, addresses: Collection[str]) -> None:
    write_atomically(out / _LIST_FILE, msgspec.json.encode(sorted(addresses)))


def _pages_before(out: Path) -> list[str]:
    """The pages of the site that lies in the folder.

    Raises UsageError if its first page is not perfgate's.
    """
    path = out / _LIST_FILE
    if not path.exists():
        if (out / OVERVIEW).exists():
            raise UsageError(
                "{path} is not of a site of perfgate, and it would be replaced; choose another folder with --out",
                path=out / OVERVIEW,
            )
        return []
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_LIST_BYTES + 1)
        listed = msgspec.convert(
            parse_json(data, name=str(path), max_bytes=_MOST_LIST_BYTES), list[str]
        )
    except (OSError, msgspec.ValidationError) as error:
        raise DocumentError(
            "{path}: {error}; remove it, and old pages of runs stay",
            path=path,
            error=error,
        ) from error
    return [address for address in listed if is_address(address)]


def _prepare(out: Path) -> None:
    """Make the folders.

    Raises UsageError for a link, which would redirect the pages, and for a file.
    """
    for folder in (out / name for name in ("", *_FOLDERS)):
        if folder.is_symlink():
            raise UsageError(
                "{folder} is a link; remove it, or choose another folder with --out",
                folder=folder,
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                "the folder {folder} cannot be made: {error}; choose another with --out",
                folder=folder,
                error=error,
            ) from error
