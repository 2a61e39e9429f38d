"""The official API descriptions of forges, where they lie beside the repository."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.samples import recordings

if TYPE_CHECKING:
    from tests.fakes.openapi_slice import Slice

# Documented calls that the slices leave out, by forge.
MORE = Path(__file__).parents[1] / "data" / "forge"


@cache
def load_slice(relative: str) -> Slice | None:
    """Return the judge for one forge, or None where the samples are not there."""
    spec = spec_of(relative)
    if spec is None:
        return None
    # Imported where there is a description: every process of the tests would take a quarter of a second for it.
    from tests.fakes.openapi_slice import Slice

    return Slice(spec)


def spec_of(relative: str) -> dict[str, Any] | None:
    """Return the API description of one forge with the paths it leaves out; None where the samples are not there."""
    path = recordings() / "forge-samples" / relative
    if not path.exists():
        return None
    spec: dict[str, Any] = json.loads(path.read_bytes())
    more = MORE / f"{Path(relative).parent}.openapi.more.json"
    if more.exists():
        for described, operations in json.loads(more.read_bytes())["paths"].items():
            spec["paths"].setdefault(described, {}).update(operations)
    return spec
