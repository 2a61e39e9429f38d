"""The hashes that a package index gives for the files of a version, by the simple repository API (PEP 503, PEP 691)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from configparser import ConfigParser
from configparser import Error as ConfigParserError
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from perfgate.flows.init.locked import PUBLIC_INDEX

SECONDS = 10.0
_AT_ONCE = 8
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"


def find_hashes(wanted: Collection[tuple[str, str, str]]) -> tuple[Mapping[str, Sequence[str]], str]:
    """The hashes of all files of each (name, version, index), by package name; an empty index means the one pip would use.

    The search stops at the first index that fails; the text describes that failure.
    """
    if os.environ.get("PIP_NO_INDEX"):
        return {}, "PIP_NO_INDEX is set, so no index was asked"
    by_index: dict[str, list[tuple[str, str]]] = {default_index(): []}
    for name, version, index in sorted(wanted):
        by_index.setdefault(index or default_index(), []).append((name, version))
    hashes: dict[str, Sequence[str]] = {}
    with requests.Session() as session:
        for index, packages in by_index.items():
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                asked = {name: pool.submit(_hashes, session, index, name, version) for name, version in packages}
                try:
                    hashes.update({name: answer.result() for name, answer in asked.items()})
                except (requests.RequestException, ValueError, KeyError, TypeError) as error:
                    pool.shutdown(cancel_futures=True)
                    return hashes, f"the index {urlsplit(index).hostname} gave none ({type(error).__name__})"
    return hashes, ""


def default_index() -> str:
    """The index that pip would use, from the environment or its configuration files; else the public one."""
    for variable in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        if address := os.environ.get(variable):
            return address
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    for path in (
        os.environ.get("PIP_CONFIG_FILE"),
        home / "pip/pip.conf",
        Path.home() / ".pip/pip.conf",
        "/etc/pip.conf",
    ):
        parser = ConfigParser(interpolation=None)
        try:
            parser.read(path or [])
        except (ConfigParserError, UnicodeDecodeError):
            continue
        if address := parser.get("global", "index-url", fallback=""):
            return address
    return PUBLIC_INDEX


def _hashes(session: requests.Session, index: str, name: str, version: str) -> list[str]:
    page = f"{index.rstrip('/')}/{name}/"
    answer = session.get(page, headers={"Accept": _ACCEPT}, timeout=SECONDS)
    answer.raise_for_status()
    is_json = "json" in answer.headers.get("Content-Type", "")
    files = (
        ((file["filename"], file["hashes"].get("sha256")) for file in answer.json()["files"])
        if is_json
        else _of_html(answer.text)
    )
    return [f"sha256:{digest}" for file, digest in files if digest and _version_of(file) == Version(version)]


def _of_html(page: str) -> Iterator[tuple[str, str]]:
    anchors = _Anchors()
    anchors.feed(page)
    for address in anchors.addresses:
        place, _, fragment = address.partition("#")
        if match := re.search(r"sha256=([0-9a-f]{64})", fragment):
            yield unquote(place.rpartition("/")[2]), match[1]


class _Anchors(HTMLParser):
    """Collects the link targets of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if tag == "a" and name == "href" and value]


def _version_of(file: str) -> Version | None:
    try:
        return parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None
