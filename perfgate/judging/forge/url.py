"""Checks of the addresses that a token may be sent to, or a file fetched from."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from perfgate.errors import ForgeError, ForgeSettingError
from perfgate.system.loopback import is_loopback_host

_PORTS = {"https": 443, "http": 80}


def api_root(url: str) -> str:
    """An API root without a trailing slash.

    Raises ForgeSettingError unless it is https, or on this machine.
    """
    parts = _split(url)
    if (
        parts.username
        or parts.password
        or parts.query
        or parts.fragment
        or not parts.hostname
    ):
        raise ForgeSettingError(
            "the API address must have the form https://HOST/PATH; the address of {hostname!r} does not",
            hostname=parts.hostname,
        )
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(url)):
        raise ForgeSettingError(
            "the API address {scheme}://{netloc} is not https; a token is not sent in the clear",
            scheme=parts.scheme,
            netloc=parts.netloc,
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def is_loopback(url: str) -> bool:
    return is_loopback_host(_split(url).hostname or "")


def check_page_url(url: str, root: str) -> str:
    """The address of a list's next page, below the root as it is written here. Raises
    ForgeError if it leads to another host or scheme.
    """
    page, home = _split(url), _split(root)
    is_own = _origin(page) == _origin(home) and not (page.username or page.password)
    if not is_own or not page.path.startswith(home.path + "/"):
        raise ForgeError(
            "the next page of a list lies at {scheme}://{hostname}, not under {root}; it is not followed",
            scheme=page.scheme,
            hostname=page.hostname,
            root=root,
        )
    below = page.path.removeprefix(home.path)
    return f"{root}{below}?{page.query}" if page.query else f"{root}{below}"


def download_address(url: str, root: str) -> str:
    """The address of a file the forge keeps elsewhere. Raises ForgeError unless it is
    https, or both are on this machine.
    """
    parts = _split(url)
    local = parts.scheme == "http" and is_loopback(url) and is_loopback(root)
    if (
        not parts.hostname
        or parts.username
        or parts.password
        or not (parts.scheme == "https" or local)
    ):
        raise ForgeError(
            "the forge names {scheme}://{hostname} for a download; only https is followed",
            scheme=parts.scheme,
            hostname=parts.hostname,
        )
    return url


def is_same_host(url: str, root: str) -> bool:
    return _split(url).hostname == _split(root).hostname


def shown(url: str) -> str:
    """An address for messages: without password and query, which are secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "what is no address"
    return f"{parts.scheme}://{parts.hostname}{parts.path}"


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """The scheme, host and port, which an address may write in several ways."""
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ForgeError("not an address: {error}", error=error) from None
    return parts
