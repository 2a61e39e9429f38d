"""The HTTP session of every request: it signs with the given token only and follows no redirect."""

from __future__ import annotations

from collections.abc import Mapping

import requests
from requests.auth import AuthBase

from perfgate.errors import ForgeSettingError
from perfgate.judging.forge.url import is_loopback
from perfgate.version import __version__


class _StillSession(requests.Session):
    """Sees no redirect: requests would read all of its answer, and the address it names, even where it is not to follow."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """None, as for an answer that is no redirect."""


def open_session(url: str, auth: AuthBase, headers: Mapping[str, str]) -> requests.Session:
    session = _StillSession()
    # A proxy of the environment must not get what is meant for this machine.
    session.trust_env = not is_loopback(url)
    session.auth = auth
    session.headers.update({"User-Agent": f"perfgate/{__version__}", **headers})
    return session


class BearerAuth(AuthBase):
    """The token as an auth object.

    requests replaces an Authorization header given in ``headers=`` by what ~/.netrc holds for the host, but not this;
    and it drops only Authorization when a host changes, so GitLab's token goes the same way (GitLab REST API,
    "Authentication"). ``scheme`` is the word before the token: Gitea's documentation writes ``token``.
    """

    def __init__(self, token: str, scheme: str = "Bearer") -> None:
        token = token.strip()
        # A bad header value would be quoted, token and all, in the error of the library below.
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
    """Nobody. Without an auth object requests would send what ~/.netrc holds for the host."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Leave a request as it is."""
        return request
