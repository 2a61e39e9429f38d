"""A project's own check of a server's answers, which decides which of them must be equal on both sides."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perfgate.conductor.load.plan import PlannedRequest
from perfgate.conductor.load.record import Exchange
from perfgate.conductor.sides.side import SidePlace

ANSWERS_VARIABLE = "PERFGATE_ANSWERS"


def check_answers(
    line: str,
    requests: Iterable[PlannedRequest],
    exchanges: Iterable[Exchange],
    place: SidePlace,
    *,
    timeout: float,
) -> str:
    """The last line that the program ``line`` prints about the answers."""
    answers = []
    for request, exchange in zip(requests, exchanges):
        answers.append(
            {"id": request.id, "prompt": request.prompt, "answer": exchange.text}
        )
    file = place.log.with_suffix(".answers.jsonl")
    file.write_bytes(msgspec.json.Encoder().encode_lines(answers))
    program = place.run(
        line, {ANSWERS_VARIABLE: str(file)}, log=place.log.with_suffix(".check.log")
    )
    try:
        code = program.wait(timeout).code
        verdict = program.output().strip().rpartition("\n")[2].strip()
        if code or not verdict:
            raise program.failed("exit", "job.check-failed", line=line, code=code)
    finally:
        program.stop()
    return verdict
