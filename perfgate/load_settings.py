"""The settings of a load in perfgate.toml."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from perfgate.errors import ConfigError

# A day's worth of requests at a thousand a second is more than one turn can be meant to
# send.
MOST_REQUESTS = 100_000_000
# A prompt of more words than the longest context windows hold is a mistyped one.
MOST_WORDS = 10_000_000

Text = Annotated[str, Meta(min_length=1)]
# A longer limit than a year is a mistyped one.
Seconds = Annotated[float, Meta(gt=0, le=365 * 86_400.0)]
Requests = Annotated[int, Meta(ge=1, le=MOST_REQUESTS)]
Words = Annotated[int, Meta(ge=1, le=MOST_WORDS)]
Rate = Annotated[float, Meta(gt=0, le=1e6)]


def doc(text: str) -> Meta:
    """The description of a setting; it is in the schema next to its bounds, and from
    there in docs/configuration.md.
    """
    return Meta(description=text)


class Lengths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths that are drawn for each request: evenly from `least` to `most`, or
    lognormally around `median`.
    """

    least: Annotated[Words, doc("The shortest.")] = 1
    most: Annotated[Words, doc("The longest.")]
    median: Annotated[
        Words | None, doc("The median of a lognormal distribution; needs `sigma`.")
    ] = None
    sigma: Annotated[
        Annotated[float, Meta(gt=0, le=5)] | None,
        doc(
            "The standard deviation of the logarithms: two thirds of the lengths are within a factor of e to the power of it."
        ),
    ] = None

    def __post_init__(self) -> None:
        if not self.least <= (self.median or self.least) <= self.most:
            raise ConfigError(
                "lengths need least <= median <= most, found least = {least}, most = {most}{median}",
                least=self.least,
                most=self.most,
                median=f", median = {self.median}" if self.median else "",
            )
        if (self.median is None) != (self.sigma is None):
            raise ConfigError(
                "median and sigma belong together; write e.g. { median = 256, sigma = 0.8, most = 4096 }, or "
                "{ least = 32, most = 512 } for lengths that are all as likely"
            )


Length = Words | Annotated[list[Words], Meta(min_length=1, max_length=10_000)] | Lengths


class LoadSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The requests of one turn.

    The times of sending come from ``rate``, ``concurrency`` or a ``log``.

    Constructing one raises ConfigError, with the correction, for contradictory
    settings.
    """

    requests: Annotated[
        Requests,
        doc(
            "Requests of one turn. From a log or a dataset each turn takes the next requests; after the last come"
            " the first again, with a number before each prompt."
        ),
    ] = 8
    rate: Annotated[
        Rate | Literal["highest"] | None,
        doc(
            "Requests a second, each sent at its time whether or not earlier requests are done (an open loop). `highest`: nine "
            "tenths of the highest rate at which base holds `sla`, which is searched first."
        ),
    ] = None
    burstiness: Annotated[
        float,
        Meta(
            gt=0,
            le=1e6,
            description="Shape of the gamma distribution of the gaps between requests. 1: a "
            "Poisson process. Below 1: more bursts. "
            "Above 1: more even.",
        ),
    ] = 1.0
    concurrency: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        doc(
            "Requests under way at any time; the next is sent when one is done (a closed loop)."
        ),
    ] = None
    input: Annotated[
        Length,
        doc(
            "Words of a prompt, which are about as many tokens: a number, a list of which each request gets one, or a table of "
            "lengths."
        ),
    ] = 64
    output: Annotated[
        Length | None,
        doc(
            "Tokens that a request asks for, written as `input` is. Unset: 16; with a dataset, the number of "
            "words in the recorded answer."
        ),
    ] = None
    log: Annotated[
        str,
        doc(
            'A recorded log to replay, relative to perfgate.toml: one JSON object a line, `{"at": SECONDS, "prompt": '
            'TEXT, "output": TOKENS}`, or `"input": WORDS` in place of `prompt`. With `rate` or `concurrency` its times do not '
            "count."
        ),
    ] = ""
    dataset: Annotated[
        str,
        doc(
            "A file of conversations as ShareGPT has them, relative to perfgate.toml: a JSON list, or a line each, of "
            '`{"conversations": [{"from": "human", "value": TEXT}, {"from": "gpt", "value": TEXT}]}` or of OpenAI\'s '
            "`messages`. The first question of each is a prompt."
        ),
    ] = ""
    prefix: Annotated[
        int,
        Meta(
            ge=0,
            le=MOST_WORDS,
            description="Words that all prompts of a turn have in common at their beginning.",
        ),
    ] = 0

    def __post_init__(self) -> None:
        chosen = [name for name in ("rate", "concurrency") if getattr(self, name)]
        if len(chosen) != 1 and not (self.log and not chosen):
            raise ConfigError(
                "a load has {chosen}; write one: rate = 4 sends 4 requests a second (open loop), concurrency = 4 "
                'keeps 4 under way (closed loop), log = "requests.jsonl" replays a recording at its own times',
                chosen=" and ".join(chosen) or "none of rate, concurrency and log",
            )
        if self.log and self.dataset:
            raise ConfigError("a load has a log and a dataset; write one of them")
        if self.burstiness != 1.0 and self.rate is None:
            raise ConfigError(
                "burstiness = {burstiness} shapes the gaps of a rate, and this load has {chosen}; write rate = 4 "
                "as well, or remove burstiness",
                burstiness=self.burstiness,
                chosen=(chosen or ["log"])[0],
            )
        if not (self.log or self.dataset) and self.prefix > (
            shortest := _shortest(self.input)
        ):
            raise ConfigError(
                "prefix = {prefix} is longer than {shortest}, the shortest prompt; write prefix = {shortest} or less",
                prefix=self.prefix,
                shortest=shortest,
            )


def _shortest(length: Length) -> int:
    if isinstance(length, int):
        return length
    if isinstance(length, list):
        return min(length)
    return length.least
