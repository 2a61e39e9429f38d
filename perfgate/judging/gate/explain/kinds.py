"""The kinds of contributions to a change in time, and the share from which one explains
the change.
"""

from __future__ import annotations

from perfgate.document.alignment import AlignedWork
from perfgate.document.explanation import InputsChange, PartKind

# The share of a call's change from which a change in the work done is its cause, rather
# than operators that take longer.
EXPLAINS = 0.25


def kind_of_change(base_count: float, head_count: float, seconds: float) -> PartKind:
    """The kind of an operator's contribution, by its calls and the seconds that it
    adds.
    """
    if base_count == head_count:
        if seconds > 0:
            return "slower"
        return "faster"
    if base_count == 0:
        return "added"
    if head_count == 0:
        return "removed"
    if head_count > base_count:
        return "more"
    return "fewer"


def inputs_change(pair: AlignedWork | None) -> InputsChange | None:
    """The first difference between the inputs of a pair of rows: the dtypes, else the
    shapes, else only the layout.
    """
    if (
        pair is None
        or pair.base is None
        or pair.head is None
        or pair.base.inputs == pair.head.inputs
    ):
        return None
    before = _dtypes_and_shapes(pair.base.inputs)
    after = _dtypes_and_shapes(pair.head.inputs)
    if before is None or after is None:
        return None
    if before[0] != after[0]:
        return "dtype"
    if before[1] != after[1]:
        return "shape"
    return "layout"


def _dtypes_and_shapes(inputs: str | None) -> tuple[list[str], list[str]] | None:
    """Dtypes and shapes of inputs in the format of an account
    (``float32[8,96] strided, int64[4]``).

    None for the profiler's own format, which lacks dtypes and layouts and is the
    fallback.
    """
    if not inputs or inputs.startswith("["):
        return None
    dtypes = []
    shapes = []
    for tensor in inputs.split(", "):
        dtype, _, rest = tensor.partition("[")
        dtypes.append(dtype)
        shapes.append(rest.partition("]")[0])
    return dtypes, shapes
