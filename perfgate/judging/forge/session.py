"""The HTTP session of every request: it authenticates with the given token only and
follows no redirect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import TypeVar

import requests
from requests.auth import AuthBase

from perfgate.errors import ForgeError, ForgeSettingError, ForgeTooLargeError
from perfgate.judging.forge.url import download_address, is_loopback
from perfgate.locale import Activity
from perfgate.version import __version__


class _StillSession(requests.Session):
    """Ignores redirects: requests would read their whole answer and parse the target
    even with allow_redirects=False.
    """

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None, as for an answer without a redirect."""


def open_session(
    url: str, auth: AuthBase, headers: Mapping[str, str]
) -> requests.Session:
    session = _StillSession()
    # A proxy of the environment must not get requests to this machine.
    session.trust_env = not is_loopback(url)
    session.auth = auth
    session.headers.update({"User-Agent": f"perfgate/{__version__}", **headers})
    return session


class BearerAuth(AuthBase):
    """The token as an auth object.

    requests replaces an Authorization header given in ``headers=`` by the ~/.netrc
    entry of the host, but not an auth object; and it drops only Authorization when a
    host changes, so GitLab's token is sent the same way (GitLab REST API,
    "Authentication"). ``scheme`` is the word before the token: Gitea's documentation
    writes ``token``.
    """

    def __init__(self, token: str, scheme: str) -> None:
        token = token.strip()
        # The HTTP library would quote a bad header value, including the token, in its
        # error.
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ForgeSettingError(
                "the token is empty or has characters no token has; check the secret the job passes on"
            )
        self._token = token
        self._scheme = scheme

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Sign a request."""
        request.headers["Authorization"] = f"{self._scheme} {self._token}"
        return request

    def __repr__(self) -> str:
        return "BearerAuth(***)"

    def scrub(self, text: str) -> str:
        return text.replace(self._token, "***")


class NoAuth(AuthBase):
    """No authentication.

    Without an auth object requests would send the ~/.netrc entry of the host.
    """

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Leave a request unchanged."""
        return request


CONNECT_TIMEOUT, READ_TIMEOUT, DOWNLOAD_TIMEOUT = 10.0, 30.0, 300.0
_CHUNK = 65_536
T = TypeVar("T")


class TooSlowError(ForgeError):
    """An answer did not arrive completely in time."""


class NothingArrivedError(ForgeError):
    """The storage sent no answer, an error or a truncated file; asking the forge for a
    new address may help.
    """


def within(seconds: float, where: str, request: Callable[[], T]) -> T:
    """The result of ``request``.

    Raises TooSlowError if it takes longer than ``seconds`` in all.

    A socket timeout bounds only the wait for the next byte, so a server that drips can
    hold a reader indefinitely: in the headers, in the body, inside a compressed block.
    The thread that still reads is abandoned; it ends with the process.
    """
    outcome: list[T | BaseException] = []
    context = copy_context()  # with the language of errors

    def run() -> None:
        try:
            outcome.append(context.run(request))
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            outcome.append(error)

    reader = threading.Thread(target=run, daemon=True)
    reader.start()
    reader.join(seconds)
    if not outcome:
        raise TooSlowError(
            "{where}: the answer did not end within {seconds:g} s; run the job again later",
            where=where,
            seconds=seconds,
        )
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def download(
    location: str, *, api_root: str, most_bytes: int, verify: bool | str
) -> bytes:
    """Fetch a file from an address of the forge's storage, which is https unless both
    are on this machine.

    ``verify`` is True, or a CA file to check the storage's certificate against. Raises
    NothingArrivedError if a retry may help, ForgeError otherwise.
    """
    url = download_address(location, api_root)
    where = url.partition("?")[0]  # the rest of a signed address is a secret
    return within(
        DOWNLOAD_TIMEOUT,
        where,
        lambda: _fetch(url, where, most_bytes=most_bytes, verify=verify),
    )


def _fetch(url: str, where: str, *, most_bytes: int, verify: bool | str) -> bytes:
    try:
        with open_session(url, NoAuth(), {"Accept-Encoding": "identity"}) as session:
            timeout = (CONNECT_TIMEOUT, READ_TIMEOUT)
            with session.get(
                url, timeout=timeout, allow_redirects=False, verify=verify, stream=True
            ) as response:
                if 300 <= response.status_code < 400:
                    raise ForgeError(
                        "{where}: the storage redirects once more, which is not followed",
                        where=where,
                    )
                if response.status_code != 200:
                    raise NothingArrivedError(
                        "{where}: the storage answers HTTP {status}",
                        where=where,
                        status=response.status_code,
                    )
                data = read_bounded(
                    response,
                    where,
                    most_bytes=most_bytes,
                    advice=Activity("an artifact of a check is smaller"),
                )
                announced = response.headers.get("Content-Length", "")
    except requests.exceptions.SSLError as error:
        raise ForgeError(
            "{where}: {error}; is the forge's CA file configured?",
            where=where,
            error=_without_query(error, url),
        ) from None
    except requests.RequestException as error:
        raise NothingArrivedError(
            "{where}: no answer ({error})",
            where=where,
            error=_without_query(error, url),
        ) from None
    if announced.isdecimal() and int(announced) != len(data):
        raise NothingArrivedError(
            "{where}: {count} of {announced} bytes arrived",
            where=where,
            count=len(data),
            announced=announced,
        )
    return data


def read_bounded(
    response: requests.Response, where: str, *, most_bytes: int, advice: str
) -> bytes:
    """The body of a streamed answer. Raises ForgeTooLargeError above ``most_bytes``."""
    data = bytearray()
    for chunk in response.iter_content(_CHUNK):
        data += chunk
        if len(data) > most_bytes:
            raise ForgeTooLargeError(
                "{where}: the answer is larger than {most_bytes} bytes; {advice}",
                where=where,
                most_bytes=most_bytes,
                advice=advice,
            )
    return bytes(data)


def _without_query(error: Exception, url: str) -> str:
    query = url.partition("?")[2]
    text = " ".join(str(error).split())[:300]
    if query:
        return text.replace(query, "...")
    return text
