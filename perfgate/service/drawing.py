"""Pages of ``perfgate serve``, drawn in processes of their own: one takes seconds and much memory."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perfgate.errors import PerfgateError, UsageError
from perfgate.flows.shared.trees import label_of, tree_of
from perfgate.flows.trace.choice import Choice
from perfgate.flows.trace.flame import trace_flame
from perfgate.flows.trace.job import choose
from perfgate.flows.trace.places import Place
from perfgate.flows.trace.ranks import trace_ranks
from perfgate.flows.trace.ranks_page import drawn_ranks
from perfgate.judging.report.render.flame import render_flame
from perfgate.judging.report.render.ranks import render_ranks_page
from perfgate.judging.report.render.timeline import render_timeline
from perfgate.locale import Language
from perfgate.service.library import within
from perfgate.trace.pages.timeline import drawn_timeline

PageKind = Literal["flame", "timeline", "ranks"]
_MOST_PROCESSES = 4


class PageRequest(NamedTuple):
    """A page of the recording at ``path``, shown as ``name``; a flame graph may compare it with ``head``."""

    kind: PageKind
    path: Path
    name: str
    language: Language
    head: Path | None = None


class Drawers:
    """Processes that draw pages, started with the first page."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def draw(self, request: PageRequest) -> str:
        """The page. Raises the errors of reading and drawing, and PerfgateError if the process was killed."""
        pool = self._pool = self._pool or _pool()
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, draw_page, request)
        except BrokenProcessPool as error:
            if self._pool is pool:
                self._pool = None
            raise PerfgateError(
                "{name}: the process that drew it was killed; it may need more memory", name=request.name
            ) from error

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _pool() -> ProcessPoolExecutor:
    # A child forked from a process with threads may inherit a lock that is never released.
    context = multiprocessing.get_context("forkserver")
    processes = min(os.cpu_count() or 1, _MOST_PROCESSES)
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    return ProcessPoolExecutor(processes, mp_context=context, initializer=ignore)


def draw_page(request: PageRequest) -> str:
    """Read the recording and draw the page. Raises UsageError if it has nothing to draw."""
    return within(partial(_DRAWINGS[request.kind], request))


def _flame(request: PageRequest) -> str:
    if request.head is not None:
        trees = trace_flame(request.path, request.head, Choice(), note=lambda _: None)
        return render_flame(trees, request.language)
    chosen = choose(request.path, Choice())
    trees = [tree_of(pick.timeline, label_of(request.name, pick.timeline, several=True)) for pick in chosen]
    return render_flame(_some([tree for tree in trees if tree.parent], request.name), request.language)


def _timeline(request: PageRequest) -> str:
    drawn = [
        drawn_timeline(
            pick.timeline.events,
            label_of(request.name, pick.timeline, several=True),
            pick.recording.notes,
            pick.timeline.readings,
        )
        for pick in choose(request.path, Choice())
        if len(pick.timeline.events)
    ]
    return render_timeline(_some(drawn, request.name), request.language)


def _ranks(request: PageRequest) -> str:
    # One process: other pages need the CPUs too.
    found = trace_ranks([Place(request.path)], workers=1, say=lambda _: None)
    return render_ranks_page(drawn_ranks(found, ()), request.language)


_DRAWINGS = {"flame": _flame, "timeline": _timeline, "ranks": _ranks}


def _some(drawn: list[Any], name: str) -> list[Any]:
    if not drawn:
        raise UsageError("{name} has no timeline with events; tables of steps or totals alone have none", name=name)
    return drawn
