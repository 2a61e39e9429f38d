"""A project's own check of a server's answers, which decides which of them must be equal on both sides."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perfgate.conductor.load.plan import PlannedRequest
from perfgate.conductor.load.record import Exchange
from perfgate.conductor.sides.program import SideProgram
from perfgate.conductor.sides.side import SidePlace
from perfgate.document.message import Message

ANSWERS_VARIABLE = "PERFGATE_ANSWERS"


def check_answers(
    line: str, requests: Iterable[PlannedRequest], exchanges: Iterable[Exchange], place: SidePlace, *, timeout: float
) -> str:
    """The last line that the program ``line`` prints of the answers.

    The last line that the program ``line`` prints about the answers.
    """
    file = place.log.with_suffix(".answers.jsonl")
    answers = [
        {"id": request.id, "prompt": request.prompt, "answer": exchange.text}
        for request, exchange in zip(requests, exchanges)
    ]
    file.write_bytes(b"".join(msgspec.json.encode(answer) + b"\n" for answer in answers))
    program = SideProgram(
        line,
        folder=place.root,
        environment={**place.environment, ANSWERS_VARIABLE: str(file)},
        log=place.log.with_suffix(".check.log"),
        cpus=place.cpus,
        room=place.room,
    )
    try:
        code = program.wait(timeout).code
        printed = program.output().split("\n")
        verdict = next((text.strip() for text in reversed(printed) if text.strip()), "")
        if code or not verdict:
            raise program.failed("exit", Message("job.check-failed", {"line": line, "code": code}))
    finally:
        program.stop()
    return verdict
