"""Keep Python's garbage collection out of timed code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

# The functions themselves, taken before user code runs: one that puts an empty
# collect() into the module hides its garbage.
from gc import (
    collect,
    disable,
    enable,
    freeze,
    get_freeze_count,
    get_objects,
    isenabled,
    unfreeze,
)

# Open contexts of quiet().
_depth = 0


@contextmanager
def quiet() -> Iterator[None]:
    """Collect garbage, freeze live objects and turn the collector off; restore all of
    it at the end.

    Frozen objects are invisible to the collector (``gc.freeze``), so that collecting
    between two measurements inside the context costs microseconds instead of a walk
    over all imports of torch. Contexts may nest.
    """
    global _depth  # noqa: PLW0603 - the heap is one for the whole process
    was_enabled = isenabled()
    # Counting walks over everything that is frozen, so an inner context does not count.
    was_frozen = _depth > 0 or get_freeze_count() > 0
    collect()
    freeze()
    disable()
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        if not was_frozen:
            unfreeze()
        if was_enabled:
            enable()


@contextmanager
def collector_off() -> Iterator[None]:
    """Turn the collector off without collecting, and collect the garbage at the end.

    For spans so short that a full collection before each of them would cost more than
    they do.
    """
    was_enabled = isenabled()
    disable()
    try:
        yield
    finally:
        collect()
        if was_enabled:
            enable()


def thaw() -> None:
    """Show the collector all live objects again, as in a service: frozen objects add no
    time to a collection.

    Within a ``quiet`` context they stay frozen, as it promises.
    """
    if not _depth:
        unfreeze()


def all_objects() -> list[object]:
    """The objects that the collector tracks, frozen objects included: a warm worker has
    frozen all that it had.
    """
    if not get_freeze_count():
        return get_objects()
    unfreeze()
    try:
        return get_objects()
    finally:
        freeze()
