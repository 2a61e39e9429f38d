"""The testbed: machine, device, software and settings, and the hash that decides
whether two are comparable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Literal

from perfgate.document.records import FrozenStruct

# The vendor tools' identifier of the device that a testbed was taken on, among the
# observed fields.
IDENTITY = "device.identity"


class Environment(FrozenStruct, kw_only=True):
    """The Python environment of one side, if base and head have one each, or of a run
    of the checklist alone.

    ``kind``: ``running`` is perfgate's own, ``built`` was made by ``[measure] setup``,
    ``given`` was named on the command line. ``requirements`` maps the files that define
    dependencies to a hash of their content, ``packages`` every installed distribution
    to its version. ``loaded`` are those that the workloads loaded a file of, None if
    unknown. ``image`` is the container image of the CI job, empty if the job does not
    say it.
    """

    kind: Literal["running", "built", "given"]
    python: str
    requirements: dict[str, str] = {}
    packages: dict[str, str] = {}
    loaded: list[str] | None = None
    image: str = ""


class Testbed(FrozenStruct, kw_only=True):
    """Machine, device, software and settings.

    ``comparable`` holds the fields that must be equal for two runs to be compared, and
    ``fingerprint`` is their hash; ``observed`` holds fields worth knowing that may
    differ (load, temperature, time of boot).
    """

    fingerprint: str
    device_kind: str
    comparable: dict[str, str]
    observed: dict[str, str] = {}
    # Present if base and head differ in it, and for a run of the checklist alone.
    environment: Environment | None = None


def fingerprint(comparable: Mapping[str, str]) -> str:
    """The hash of the fields that must be equal: 16 hex digits of SHA-256 over sorted
    JSON.
    """
    return hashlib.sha256(
        json.dumps(dict(comparable), sort_keys=True).encode()
    ).hexdigest()[:16]
