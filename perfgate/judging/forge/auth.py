"""What signs a request: the token, kept where it cannot leak or be replaced, or nothing at all."""

from __future__ import annotations

import requests
from requests.auth import AuthBase

from perfgate.errors import ForgeSettingError


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
        """Return a text without the token."""
        return text.replace(self._token, "***")


class NoAuth(AuthBase):
    """Nobody. Without an auth object requests would send what ~/.netrc holds for the host."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Leave a request as it is."""
        return request
