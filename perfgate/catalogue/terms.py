"""Closed lists of words in the catalogue, with light imports only, because the command
line offers some as choices.
"""

from __future__ import annotations

from typing import Literal

Better = Literal["lower", "higher", "neutral"]
Kind = Literal["noisy", "exact"]
DeviceKind = Literal["npu", "cuda", "cpu"]
DEVICE_KINDS: tuple[DeviceKind, ...] = ("npu", "cuda", "cpu")
# A gain is one of a call, an item of a batch, an answer under traffic, or a raw input
# on its way to the output.
GainOf = Literal["call", "item", "answer", "input"]
# The units of the parts of a counter: calls of operators, or bytes held, copied or left
# behind, blocks taken from the allocator, arithmetic, functions and bytecodes of
# Python.
Amount = Literal[
    "calls", "held", "copied", "kept", "blocks", "flops", "functions", "bytecodes"
]
# The sorts of numbers of unit 1: a share of a whole, a quotient, a count or a mean of
# counts, yes or no, something else.
Sort = Literal["share", "ratio", "count", "answer", "value"]
# How the gate compares a metric: over pairs of processes, decisive or informative; as
# an exact count; over pairs or turns of its step if [gate.tolerance] names it; over
# turns of a job; as a part of a call that changed; between two recordings; by a special
# rule; or not at all.
Compared = Literal[
    "pairs",
    "beside",
    "count",
    "named_pairs",
    "named_turns",
    "job",
    "part",
    "recorded",
    "rule",
    "never",
]
# Base units; counts and shares have the unit 1.
Unit = Literal["1", "B", "B/s", "Cel", "J", "W", "items/s", "s", "tokens/s"]
