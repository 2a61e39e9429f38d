"""The arguments of the questions; their JSON schema describes them to every kind of asker."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from perfgate.document.trace import TopKey

# PostgreSQL stores no NUL in a text.
_NO_NUL = r"^[^\x00]*$"
_Run = Annotated[str, Meta(min_length=4, max_length=64, pattern="^[0-9a-fA-F]*$")]


class ProjectArguments(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A question about a project of the store."""

    project: Annotated[
        str,
        Meta(
            max_length=300,
            pattern=_NO_NUL,
            description="The project; not needed if there is only one.",
        ),
    ] = ""


class NoArguments(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A question without details."""


class ListArguments(ProjectArguments, frozen=True, kw_only=True):
    """How many of its open regressions or of its newest verdicts to list."""

    limit: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum number of entries.")
    ] = 20


class ChangeArguments(ProjectArguments, frozen=True, kw_only=True):
    """A change of main."""

    commit: Annotated[
        str,
        Meta(
            min_length=4,
            max_length=64,
            pattern=r"^[0-9a-zA-Z]*$",
            description="The first bad commit, or its beginning.",
        ),
    ]


class CompareArguments(ProjectArguments, frozen=True, kw_only=True):
    """Two stored runs."""

    earlier: Annotated[
        _Run, Meta(description="The id of the earlier run, or its beginning.")
    ]
    later: Annotated[
        _Run, Meta(description="The id of the later run, or its beginning.")
    ]
    limit: Annotated[
        int, Meta(ge=1, le=1000, description="Maximum number of numbers shown.")
    ] = 50


class SuggestionArguments(ProjectArguments, frozen=True, kw_only=True):
    """A stored run."""

    run: Annotated[
        str,
        Meta(
            max_length=64,
            pattern="^[0-9a-fA-F]*$",
            description="The id of a run, or its beginning; the newest if not given.",
        ),
    ] = ""


class TopArguments(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A recording, and the rows to show."""

    recording: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=4000,
            pattern=_NO_NUL,
            description="The recording: its path, or behind a service its name in /api/recordings.",
        ),
    ]
    by: Annotated[
        TopKey,
        Meta(
            description="What a row is: an operator type, a name, a type with its shapes, or a line."
        ),
    ] = "type"
    host: Annotated[
        bool,
        Meta(description="Operators of the host, even if the recording has a device."),
    ] = False
    limit: Annotated[
        int,
        Meta(ge=1, le=1000, description="Maximum number of rows for each timeline."),
    ] = 20
