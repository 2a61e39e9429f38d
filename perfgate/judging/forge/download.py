"""Fetch a file that the forge keeps elsewhere: the redirect is followed once, by hand, and the token stays behind."""

from __future__ import annotations

import requests

from perfgate.errors import ForgeError, ForgeTooLargeError
from perfgate.judging.forge.limits import Clock
from perfgate.judging.forge.session import NoAuth, open_session
from perfgate.judging.forge.url import download_address

CONNECT_TIMEOUT, READ_TIMEOUT, DOWNLOAD_TIMEOUT = 10.0, 30.0, 300.0
_CHUNK = 65536


class NothingArrivedError(ForgeError):
    """The storage did not answer, not with the file, or not with all of it; asking the forge again may help."""


def download(location: str, *, api_root: str, most_bytes: int, clock: Clock, verify: bool | str) -> bytes:
    """What lies at an address the forge gave, which is https unless both are on this machine.

    ``verify`` is True, or a file of certificates to check the storage's by. Raises NothingArrivedError where it may
    come yet, ForgeError where it will not.
    """
    url = download_address(location, api_root)
    where = url.partition("?")[0]  # the rest of a signed address is a secret
    try:
        with open_session(url, NoAuth(), {"Accept-Encoding": "identity"}) as session:
            timeout = (CONNECT_TIMEOUT, READ_TIMEOUT)
            with session.get(url, timeout=timeout, allow_redirects=False, verify=verify, stream=True) as response:
                return _read(response, where, most_bytes, clock)
    except requests.exceptions.SSLError as error:
        raise ForgeError(f"{where}: {_without_query(error, url)}; is the forge's own CA file given?") from None
    except requests.RequestException as error:
        raise NothingArrivedError(f"{where}: no answer ({_without_query(error, url)})") from None


def _read(response: requests.Response, where: str, most_bytes: int, clock: Clock) -> bytes:
    if 300 <= response.status_code < 400:
        raise ForgeError(f"{where}: the storage redirects once more, which is not followed")
    if response.status_code != 200:
        raise NothingArrivedError(f"{where}: the storage answers HTTP {response.status_code}")
    deadline = clock() + DOWNLOAD_TIMEOUT
    data = bytearray()
    for chunk in response.iter_content(_CHUNK):
        data += chunk
        if len(data) > most_bytes:
            raise ForgeTooLargeError(f"{where}: larger than {most_bytes} bytes; no artifact of a check is")
        if clock() > deadline:
            raise ForgeError(f"{where}: did not arrive within {DOWNLOAD_TIMEOUT:.0f} s")
    announced = response.headers.get("Content-Length", "")
    if announced.isdecimal() and int(announced) != len(data):
        raise NothingArrivedError(f"{where}: {len(data)} of {announced} bytes arrived")
    return bytes(data)


def _without_query(error: Exception, url: str) -> str:
    query = url.partition("?")[2]
    text = " ".join(str(error).split())[:300]
    return text.replace(query, "...") if query else text
