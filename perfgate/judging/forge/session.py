"""What every request of ours is sent by: it goes to the address it was given, signed by whom it was given, and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping

import requests
from requests.auth import AuthBase

from perfgate.judging.forge.url import is_loopback
from perfgate.version import __version__


class _StillSession(requests.Session):
    """Sees no redirect: requests would read all of its answer, and the address it names, even where it is not to follow."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return None, as for an answer that is no redirect."""


def open_session(url: str, auth: AuthBase, headers: Mapping[str, str]) -> requests.Session:
    """Return a session for requests below an address."""
    session = _StillSession()
    # A proxy of the environment must not get what is meant for this machine.
    session.trust_env = not is_loopback(url)
    session.auth = auth
    session.headers.update({"User-Agent": f"perfgate/{__version__}", **headers})
    return session
