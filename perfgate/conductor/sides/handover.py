"""What a worker hands over at the end of its blocks must be the blocks it was asked for, and fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perfgate.conductor.workers.worker import WorkerError
from perfgate.document.columns import misfit
from perfgate.document.run import BlockColumns, ErrorDetail
from perfgate.protocol import BlockRequest


def refuse_other_blocks(shapes: Mapping[str, BlockColumns], asked: Mapping[str, Sequence[BlockRequest]]) -> None:
    """Raise WorkerError where the columns are not those of the blocks that were asked for."""
    if shapes.keys() != asked.keys():
        raise _refused(f"shapes {', '.join(sorted(shapes))[:200]} instead of {', '.join(sorted(asked))[:200]}")
    for shape, columns in shapes.items():
        if what := misfit(columns):
            raise _refused(f"shape {shape}: {what}")
        told = list(zip(columns.quad, columns.sequence, columns.calls))
        if told != [(request.quad, request.sequence, request.calls) for request in asked[shape]]:
            raise _refused(f"shape {shape}: other blocks than it was asked for")


def _refused(what: str) -> WorkerError:
    return WorkerError(
        ErrorDetail(kind="protocol", message=f"what the worker hands over is false: {what}"), alive=False
    )
