"""The joint decision: one verdict on a change from the decisions of several testbeds."""

from __future__ import annotations

from typing import Literal

from perfgate.document.decision import Verdict
from perfgate.document.message import Message
from perfgate.document.records import FrozenStruct


class VerdictOnTestbed(FrozenStruct, kw_only=True):
    """The verdict of one testbed.

    ``device`` is the kind that perfgate.toml expects, ``decision`` the path of its
    document.
    """

    testbed: str
    device: str | None = None
    verdict: Verdict
    exit_code: int
    reasons: list[Message]
    decision: str


class JointDecision(FrozenStruct, kw_only=True):
    """FAIL if a testbed fails, else INCONCLUSIVE if one is undecided, unfit or missing;
    ``exit_code`` is the verdict's.

    ``testbeds`` are all that are expected, in the order of perfgate.toml.
    """

    schema: Literal["perfgate/joint-decision"] = "perfgate/joint-decision"
    schema_version: int = 1
    perfgate_version: str
    project: str
    verdict: Verdict
    exit_code: int
    testbeds: list[VerdictOnTestbed]
