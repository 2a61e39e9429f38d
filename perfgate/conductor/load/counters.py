"""A server's own counters, from the Prometheus text of its ``/metrics``.

The names are those that vLLM (V1) and SGLang document as "Production Metrics"; a counter that a server lacks is absent.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping

# The servers' names, and the name in documents.
_NAMES: Mapping[str, str] = {
    "vllm:prefix_cache_queries_total": "prefix_queries",
    "sglang:prompt_tokens_total": "prefix_queries",
    "vllm:prefix_cache_hits_total": "prefix_hits",
    "sglang:cached_tokens_total": "prefix_hits",
    "vllm:spec_decode_num_draft_tokens_total": "drafted",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
    "vllm:num_preemptions_total": "preemptions",
    "vllm:iteration_tokens_total_count": "iterations",
}
_LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{.*\})? (\S+)", re.MULTILINE)
_MOST_BYTES = 1 << 24


def read_counters(address: str, timeout: float) -> dict[str, int]:
    """The counters of a server at ``address``, summed over labels; empty if it has none."""
    try:
        with urllib.request.urlopen(address, timeout=timeout) as answer:  # noqa: S310 - our own http address
            return parse_counters(answer.read(_MOST_BYTES).decode(errors="replace"))
    except OSError:
        return {}


def parse_counters(text: str) -> dict[str, int]:
    """Prometheus text format 0.0.4: ``name{labels} value``, a line each. Values that are not numbers are left out."""
    counters: dict[str, int] = {}
    for name, value in _LINE.findall(text):
        if ours := _NAMES.get(name):
            try:
                counters[ours] = counters.get(ours, 0) + int(float(value))
            except (ValueError, OverflowError):
                continue
    return counters
