"""Ask the workload's own check whether an output is right."""

from __future__ import annotations

import traceback
from typing import Any

from perfgate.measuring.workload.bound import BoundWorkload

MAX_MESSAGE = 500


def refusal(workload: BoundWorkload, output: Any, inputs: Any) -> str | None:
    """Why the workload's check refuses the output, None where it does not or there is none.

    Both are on the host.
    """
    check = workload.workload.check
    if check is None:
        return None
    try:
        accepted = check(output, inputs)
        # Not `is False`: a tensor or numpy bool that says no is a no as well.
        refused = accepted is not None and not accepted
    except Exception as error:  # noqa: BLE001 - whatever the check raises is its way of saying no
        return words_of(error)
    return f"check returned {accepted!r}"[:MAX_MESSAGE] if refused else None


def words_of(error: Exception) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()[:MAX_MESSAGE]
