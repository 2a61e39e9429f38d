"""Closed lists of words in the catalogue; nothing heavy is imported here, because the command line offers some as choices."""

from __future__ import annotations

from typing import Literal

Better = Literal["lower", "higher", "neutral"]
Kind = Literal["noisy", "exact"]
DeviceKind = Literal["npu", "cuda", "cpu"]
DEVICE_KINDS: tuple[DeviceKind, ...] = ("npu", "cuda", "cpu")
# A gain is one of a call, an item of a batch, an answer under traffic, or a raw input on its way to the output.
GainOf = Literal["call", "item", "answer", "input"]
# What the parts of a counter count: calls of operators, or bytes held, copied or left behind, blocks taken from the allocator,
# arithmetic, functions and bytecodes of Python.
Amount = Literal["calls", "held", "copied", "kept", "blocks", "flops", "functions", "bytecodes"]
# Base units; 1 is that of counts and shares.
Unit = Literal["1", "B", "B/s", "Cel", "J", "W", "items/s", "s", "tokens/s"]
