"""What a load is made of, as perfgate.toml says it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from perfgate.errors import ConfigError

# A day's worth of requests at a thousand a second is more than one turn can be meant to send.
MOST_REQUESTS = 100_000_000
# A prompt of more words than the longest context windows hold is a mistyped one.
MOST_WORDS = 10_000_000

Requests = Annotated[int, msgspec.Meta(ge=1, le=MOST_REQUESTS)]
Words = Annotated[int, msgspec.Meta(ge=1, le=MOST_WORDS)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


def _doc(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class LoadSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The requests of one turn. Exactly one of ``rate``, ``concurrency`` and ``log`` says when they are sent.

    Constructing one raises ConfigError, with what to write, where the settings contradict each other.
    """

    requests: Annotated[Requests, _doc("Requests of one turn. Of a log: the first so many lines.")] = 8
    rate: Annotated[
        Rate | Literal["highest"] | None,
        _doc(
            "Requests a second, each sent at its time whether or not earlier ones are done (an open loop). `highest`: nine "
            "tenths of the highest rate at which base holds `sla`, which is searched first."
        ),
    ] = None
    burstiness: Annotated[
        Annotated[float, msgspec.Meta(gt=0, le=1e6)],
        _doc(
            "Shape of the gamma distribution of the gaps between requests. 1: a Poisson process. Below 1: more bursts. "
            "Above 1: more even."
        ),
    ] = 1.0
    concurrency: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=100_000)] | None,
        _doc("Requests under way at any time; the next is sent when one is done (a closed loop)."),
    ] = None
    input: Annotated[Words, _doc("Words of a prompt, which are about as many tokens.")] = 64
    output: Annotated[Words, _doc("Tokens that a request asks for.")] = 16
    log: Annotated[
        str,
        _doc(
            'A recorded log to replay, relative to perfgate.toml: one JSON object a line, `{"at": SECONDS, "prompt": '
            'TEXT, "output": TOKENS}`, or `"input": WORDS` in place of `prompt`.'
        ),
    ] = ""
    prefix: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=MOST_WORDS)],
        _doc("Words that all prompts of a turn have in common at their beginning."),
    ] = 0

    def __post_init__(self) -> None:
        chosen = [name for name in ("rate", "concurrency", "log") if getattr(self, name)]
        if len(chosen) != 1:
            raise ConfigError(
                f"a load has {' and '.join(chosen) or 'none of rate, concurrency and log'}; write exactly one: rate = 4 sends "
                "4 requests a second (open loop), concurrency = 4 keeps 4 under way (closed loop), "
                'log = "requests.jsonl" replays a recording'
            )
        if self.burstiness != 1.0 and self.rate is None:
            raise ConfigError(
                f"burstiness = {self.burstiness} shapes the gaps of a rate, and this load has {chosen[0]}; write rate = 4 "
                "as well, or remove burstiness"
            )
        if self.prefix > self.input:
            raise ConfigError(
                f"prefix = {self.prefix} is longer than input = {self.input}, the whole prompt; write prefix = {self.input} "
                "or less"
            )
