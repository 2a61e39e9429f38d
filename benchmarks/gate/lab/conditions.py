"""What is varied: the code of the head, the environment of the fork server, the shape
of a pair.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from models import SOURCES
from workloads import VARIANTS

Head = Literal["same", "variant", "twin-functions", "twin-objects"]
THP = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


@dataclass(frozen=True)
class Condition:
    """One way to measure a pair.

    ``variant`` 0 draws one of the variants for every pair.

    Conditions of equal ``environment`` and ``randomize`` share a fork server.
    """

    name: str
    head: Head = "variant"
    variant: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    randomize: bool = True  # the kernel's address space randomisation
    quads: int = 10
    block_seconds: float = 0.02
    times: int = 1  # pairs a round
    pairs_per_server: int = 40

    @property
    def server(self) -> str:
        """Return what tells fork servers apart."""
        return f"{sorted(self.environment.items())} {self.randomize}"


def _bias() -> list[Condition]:
    variants = [
        Condition(f"variant {number}", variant=number)
        for number in range(1, VARIANTS + 1)
    ]
    return [Condition("same code", head="same", times=3), *variants]


def _pages() -> list[Condition]:
    return [
        Condition("as shipped", quads=6),
        Condition("huge pages", quads=6, environment=THP),
        Condition("huge pages, same code", head="same", quads=6, environment=THP),
        Condition(
            "PYTHONMALLOC=malloc", quads=6, environment={"PYTHONMALLOC": "malloc"}
        ),
    ]


def _shapes() -> list[Condition]:
    shapes = ((10, 0.02), (4, 0.02), (20, 0.005), (10, 0.01), (24, 0.02))
    return [
        Condition(
            f"{quads} quads of {seconds * 1000:.0f} ms",
            quads=quads,
            block_seconds=seconds,
        )
        for quads, seconds in shapes
    ]


def _candidates() -> list[Condition]:
    """Short pairs: four quads, and noise alone keeps a warm-up no longer than a tenth
    of a second.
    """
    return [
        Condition("as shipped"),
        short("short"),
        short("short, huge pages", THP),
        short(
            "short, huge pages, mxfast 0",
            {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mxfast=0"},
        ),
        short("short, huge pages, 16x5 ms", THP, quads=16, block_seconds=0.005),
        short("short, huge pages, pools", {**THP, "LAB_PAD": "shared"}),
        short(
            "short, huge pages, rebuilt",
            {**THP, "LAB_PAD": "shared", "LAB_REBUILD": "1"},
        ),
    ]


def _moves() -> list[Condition]:
    """Another layout inside the process before every quad, against more processes."""
    frozen = {**THP, "LAB_FREEZE": "1"}
    moved = {**frozen, "LAB_MOVE": "1"}
    return [
        short("short, frozen", frozen),
        short("short, frozen, no huge pages", {"LAB_FREEZE": "1"}),
        short("4 quads, moved", moved),
        short("10 quads, moved", moved, quads=10),
        short("20 quads of 5 ms, moved", moved, quads=20, block_seconds=0.005),
        short("10 quads, rebuilt", {**frozen, "LAB_REBUILD": "1"}, quads=10),
    ]


def _twins() -> list[Condition]:
    frozen = {"LAB_FREEZE": "1"}
    moved = {**frozen, "LAB_MOVE": "1"}
    return [
        short("variants", frozen),
        short("same code", frozen, head="same"),
        short("twin: dead functions", frozen, head="twin-functions"),
        short("twin: objects", frozen, head="twin-objects"),
        short("twin: another pad", {**frozen, "LAB_SEED": "own"}, head="same"),
        short("twin: other pools", {**frozen, "LAB_PAD": "own"}, head="same"),
        short("moved, variants", moved),
        short("moved, same code", moved, head="same"),
    ]


def short(
    name: str,
    environment: dict[str, str] | None = None,
    *,
    head: Head = "variant",
    quads: int = 4,
    block_seconds: float = 0.02,
) -> Condition:
    """Return a condition of pairs that take about half a second."""
    settings = {"LAB_SETTLING": "0.1", **(environment or {})}
    return Condition(
        name, head=head, environment=settings, quads=quads, block_seconds=block_seconds
    )


def _pads() -> list[Condition]:
    padded = {**THP, "LAB_PAD": "shared"}
    return [
        Condition("huge pages", quads=6, environment=THP),
        Condition("huge pages, pools by pair", quads=6, environment=padded),
        Condition(
            "huge pages, pools by worker",
            quads=6,
            environment={**THP, "LAB_PAD": "own"},
        ),
        Condition(
            "huge pages, rebuilt", quads=6, environment={**padded, "LAB_REBUILD": "1"}
        ),
    ]


def _gates(settings: dict[str, str] | None = None) -> list[Condition]:
    """A server of its own for every variant, as in a gate: a bias that only one server
    has would show here.
    """
    environment = {"LAB_FREEZE": "1", **(settings or {})}
    return [
        replace(
            short(f"variant {number}", {**environment, "LAB_GATE": str(number)}),
            variant=number,
            pairs_per_server=120,
        )
        for number in range(1, VARIANTS + 1)
    ]


def _moved_gates() -> list[Condition]:
    return _gates({"LAB_MOVE": "1", "LAB_PAD": "shared"})


def _memory() -> list[Condition]:
    """For workloads limited by memory: more quads, other addresses, huge pages."""
    frozen = {"LAB_FREEZE": "1"}
    return [
        short("short", frozen),
        short("short, huge pages", {**frozen, **THP}),
        short("10 quads", frozen, quads=10),
        short("10 quads, huge pages", {**frozen, **THP}, quads=10),
        short("10 quads, moved", {**frozen, "LAB_MOVE": "1"}, quads=10),
        short(
            "10 quads, moved, huge pages", {**frozen, "LAB_MOVE": "1", **THP}, quads=10
        ),
    ]


def _layout() -> list[Condition]:
    return [
        Condition("as shipped"),
        Condition("no ASLR", randomize=False),
        Condition("huge pages", environment=THP),
        Condition("huge pages, no ASLR", environment=THP, randomize=False),
    ]


EXPERIMENTS = {
    "bias": _bias,
    "pages": _pages,
    "shapes": _shapes,
    "candidates": _candidates,
    "moves": _moves,
    "twins": _twins,
    "pads": _pads,
    "gates": _gates,
    "moved-gates": _moved_gates,
    "memory": _memory,
    "layout": _layout,
}
WORKLOADS = tuple(SOURCES)
