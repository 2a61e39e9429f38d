"""The one HTTP session: a token that cannot leak or wander, bounded answers, bounded waiting."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Optional, TypeVar, Union
from urllib.parse import urlsplit

import msgspec
import requests

from perfgate.errors import ForgeError
from perfgate.judging.forge.auth import BearerAuth
from perfgate.judging.forge.limits import Clock, Refusal, Sleep, is_rate_limit, wait_after
from perfgate.judging.forge.url import api_root, check_page_url, is_loopback
from perfgate.version import __version__

Query = Mapping[str, Union[str, int]]
T = TypeVar("T")

CONNECT_TIMEOUT, READ_TIMEOUT, ANSWER_TIMEOUT = 10.0, 30.0, 120.0
MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_REQUEST_BYTES = 1024 * 1024
MAX_PAGES = 500
TRIES = 5
MAX_WAIT = 900.0
TRANSIENT = (500, 502, 503, 504)


@dataclass(frozen=True)
class Answer:
    """An answer of an expected status: its bytes and the address of the next page, checked to be on the same host."""

    status: int
    body: bytes
    next_url: Optional[str]


class ForgeSession:
    """Requests to one API root with one token.

    ``sleep`` and ``clock`` (seconds since the epoch) are doors, so that tests wait for nothing.
    """

    def __init__(
        self, api_url: str, token: str, *, accept: str, sleep: Sleep, clock: Clock, ca_file: Optional[str] = None
    ) -> None:
        self._root = api_root(api_url)
        self._auth = BearerAuth(token)
        self._sleep = sleep
        self._clock = clock
        # As an argument of every request: requests lets REQUESTS_CA_BUNDLE overwrite the session's own setting.
        self._verify: Union[bool, str] = ca_file or True
        self._session = requests.Session()
        # A proxy of the environment must not get what is meant for this machine.
        self._session.trust_env = not is_loopback(self._root)
        self._session.auth = self._auth
        self._session.headers.update({"Accept": accept, "User-Agent": f"perfgate/{__version__}"})

    def __repr__(self) -> str:
        return f"ForgeSession({self._root})"

    def get(self, path: str, kind: type[T], *, query: Optional[Query] = None) -> T:
        """Read one value. ``kind`` is the record the answer must fit."""
        return self._decode(self._request("GET", path, (200,), query=query).body, kind, path)

    def get_unless_refused(self, path: str, kind: type[T], *, refused: int) -> Optional[T]:
        """Read one value, or None where the forge answers with the status ``refused``."""
        answer = self._request("GET", path, (200, refused))
        return None if answer.status == refused else self._decode(answer.body, kind, path)

    def pages(self, path: str, kind: type[T], *, query: Optional[Query] = None) -> Iterator[T]:
        """Yield the elements of a list over all its pages."""
        url: Optional[str] = self._root + path
        for _ in range(MAX_PAGES):
            answer = self._request("GET", url or "", (200,), query=query)
            elements: list[T] = self._decode(answer.body, list[kind], path)  # type: ignore[valid-type]
            yield from elements
            url, query = answer.next_url, None
            if url is None:
                return
        raise ForgeError(f"{path} has more than {MAX_PAGES} pages; perfgate stops here")

    def send(
        self, method: str, path: str, body: Mapping[str, Any], kind: type[T], *, expect: int, repeatable: bool
    ) -> T:
        """Write something. ``repeatable`` says that doing it twice is the same as doing it once."""
        data = json.dumps(body).encode()
        if len(data) > MAX_REQUEST_BYTES:
            raise ForgeError(
                f"a request of {len(data)} bytes to {path} is too large; {MAX_REQUEST_BYTES} are sent at most"
            )
        return self._decode(self._request(method, path, (expect,), data=data, repeatable=repeatable).body, kind, path)

    def refusal(self, method: str, path: str, body: Mapping[str, Any], *, expect: int, refused: int) -> Optional[str]:
        """Write something that may be refused with one known status: return the forge's words then, else None."""
        answer = self._request(method, path, (expect, refused), data=json.dumps(body).encode(), repeatable=True)
        return answer.body.decode(errors="replace") if answer.status == refused else None

    def _request(
        self,
        method: str,
        path: str,
        expected: tuple[int, ...],
        *,
        query: Optional[Query] = None,
        data: Optional[bytes] = None,
        repeatable: bool = True,
    ) -> Answer:
        url = path if path.startswith(self._root) else self._root + path
        where = f"{method} {urlsplit(url).path}"
        waited = 0.0
        for attempt in range(TRIES):
            refusal = self._try(method, url, where, expected, query, data, repeatable)
            if isinstance(refusal, Answer):
                return refusal
            wait = wait_after(refusal, attempt, self._clock())
            if attempt == TRIES - 1 or waited + wait > MAX_WAIT:
                raise ForgeError(f"{where}: {refusal.reason}, after {attempt + 1} tries; run the job again later")
            waited += wait
            self._sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _try(
        self,
        method: str,
        url: str,
        where: str,
        expected: tuple[int, ...],
        query: Optional[Query],
        data: Optional[bytes],
        repeatable: bool,
    ) -> Union[Answer, Refusal]:
        """Send once: an Answer, a Refusal that waiting may lift, or ForgeError."""
        headers = {"Content-Type": "application/json"} if data is not None else {}
        try:
            with self._session.request(
                method,
                url,
                params=query,
                data=data,
                headers=headers,
                timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
                allow_redirects=False,
                verify=self._verify,
                stream=True,
            ) as response:
                body = self._read(response, where)
        except requests.exceptions.SSLError as error:
            # A certificate does not become good by waiting.
            raise ForgeError(self._auth.scrub(f"{where}: {error}; is the forge's own CA file given?")) from None
        except requests.RequestException as error:
            # What was sent before the connection broke may have been done.
            if not repeatable and not isinstance(error, requests.ConnectTimeout):
                raise ForgeError(self._auth.scrub(f"{where}: no answer ({error}); it may or may not be done")) from None
            return Refusal(self._auth.scrub(f"no answer ({error})"), {})
        return self._judge(response, body, where, expected, repeatable)

    def _read(self, response: requests.Response, where: str) -> bytes:
        deadline = self._clock() + ANSWER_TIMEOUT
        body = bytearray()
        for chunk in response.iter_content(65536):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                raise ForgeError(f"{where}: the answer is larger than {MAX_ANSWER_BYTES} bytes; that is not the API")
            if self._clock() > deadline:
                raise ForgeError(f"{where}: the answer did not end within {ANSWER_TIMEOUT:.0f} s")
        return bytes(body)

    def _judge(
        self, response: requests.Response, body: bytes, where: str, expected: tuple[int, ...], repeatable: bool
    ) -> Union[Answer, Refusal]:
        status = response.status_code
        headers = {name.lower(): value for name, value in response.headers.items()}
        limited = is_rate_limit(status, headers, body)
        if status in expected and not limited:
            next_url = response.links.get("next", {}).get("url")
            return Answer(status, body, check_page_url(next_url, self._root) if next_url else None)
        if limited:
            return Refusal(f"the forge asks to slow down (HTTP {status})", headers, limited=True)
        if repeatable and (status in TRANSIENT or status == 409):
            # 409: GitLab, while another update of the same pipeline runs.
            return Refusal(f"the forge answers HTTP {status}", headers)
        raise ForgeError(self._auth.scrub(f"{where}: {_explain(status, response, body)}"))

    def _decode(self, body: bytes, kind: type[T], path: str) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ForgeError(
                f"{path}: the answer is not what the API documents ({error}); is the API address right?"
            ) from None


def _explain(status: int, response: requests.Response, body: bytes) -> str:
    if 300 <= status < 400:
        target = urlsplit(response.headers.get("Location", ""))
        return (
            f"HTTP {status}, a redirect to {target.scheme}://{target.hostname}{target.path}, is not followed, because "
            "the token would go along; was the repository renamed, or is the API address wrong?"
        )
    advice = {
        401: "the token is not valid (expired, revoked, or of another server)",
        403: "the token may not do this; give the job write permission for comments and statuses (a change request "
        "from a fork never gets it: post from a workflow_run job instead)",
        404: "not found, or the token may not see it",
        413: "the text is too long",
        422: "the forge found the request invalid",
    }.get(status, "an answer perfgate does not expect here")
    return f"HTTP {status}: {advice}. The forge says: {_message(body)}"


def _message(body: bytes) -> str:
    """Return an error text of the forge, short and on one line."""
    text = body[:2000].decode(errors="replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300] or "(nothing)"
