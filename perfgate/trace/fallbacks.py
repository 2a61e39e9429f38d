"""Count the operators of a call that the device has no kernel for: the framework runs them on the host instead."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from perfgate.document.run import CounterSet, CounterSite
from perfgate.trace.tally import FRAMEWORK_OPS

FALLBACKS = "counters.fallbacks"


def with_fallbacks(counted: CounterSet, fallbacks: Collection[str]) -> CounterSet:
    """Return a set of counters with the calls of these operators added, and the lines they come from.

    An operator in place is the one of which the device has none: ``aten::lgamma_`` runs the kernel of ``aten::lgamma``.
    Where one of them differs between the counted calls, so does their number.
    """
    sites = [
        CounterSite(metric=FALLBACKS, name=site.name, count=site.count, line=site.line, code=site.code)
        for site in counted.sites
        if site.metric == FRAMEWORK_OPS and site.name.rstrip("_") in fallbacks
    ]
    wavering = any(
        name.startswith("ops.count:") and name.partition(":")[2].rstrip("_") in fallbacks for name in counted.unstable
    )
    return msgspec.structs.replace(
        counted,
        values={**counted.values, FALLBACKS: sum(site.count for site in sites)},
        unstable=sorted({*counted.unstable, FALLBACKS}) if wavering else counted.unstable,
        sites=[*counted.sites, *sites],
    )


def fallback_sites(counted: CounterSet) -> list[CounterSite]:
    """Return where a call runs an operator on the host."""
    return [site for site in counted.sites if site.metric == FALLBACKS]
