"""``perfgate trace``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from perfgate.cli.groups import CommandGroup
from perfgate.cli.options import FILE, PATH, language_option
from perfgate.cli.streams import print_json
from perfgate.locale import Language, environment_language, sentence

if TYPE_CHECKING:
    from perfgate.document.message import Message
    from perfgate.document.trace import (
        AnswerDocument,
        DiffDocument,
        DiffKey,
        GapDocument,
        RequestDocument,
        StepDocument,
        TopDocument,
        TopKey,
    )
    from perfgate.flows.trace.executors import Cluster
    from perfgate.flows.trace.gathering import Place
    from perfgate.flows.trace.trace import Choice
    from perfgate.judging.report.render.flame import FlameFormat

_SHOWN = 20
_Command = Callable[..., Any]
_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


_rank = click.option(
    "--rank", type=click.IntRange(min=0), metavar="N", help="Only this rank."
)
_device = click.option(
    "--device", type=click.IntRange(min=0), metavar="N", help="Only this device."
)


def _import_meanwhile(*modules: str) -> None:
    """Import modules that print an answer while it is computed.

    The loops of the answer release Python's lock. An error is left to the import that
    needs them.
    """

    def work() -> None:
        for module in modules:
            with suppress(Exception):
                import_module(module)

    Thread(target=work, daemon=True).start()


def _rendered_by(
    name: str, module: str = "trace", *, rows: int | None = _SHOWN
) -> Callable[[_Command], _Command]:
    """A command that answers with a document: as JSON, or rendered by the function ``name`` of the report.

    It gets the choice of ranks, devices and rows, of which a terminal shows ``rows`` by default.
    """

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def answer(
            path: Path,
            rank: int | None,
            device: int | None,
            limit: int | None,
            as_json: bool,
            **options: Any,
        ) -> None:
            from perfgate.flows.trace.trace import Choice

            if limit is None and not as_json:
                limit = rows
            renderer = f"perfgate.judging.report.render.{module}"
            if not as_json and module == "trace_diff":
                _import_meanwhile(renderer)
            document = command(
                path, Choice(rank=rank, device=device, limit=limit), **options
            )
            if as_json:
                print_json(document)
            else:
                getattr(import_module(renderer), name)(document, _console())

        del answer.__wrapped__  # it takes the options itself, not the choice
        limit = click.option(
            "--limit",
            type=click.IntRange(min=1),
            metavar="N",
            help=f"Rows per device; default {_SHOWN}, with --json all.",
        )
        as_json = click.option(
            "--json", "as_json", is_flag=True, help="Print JSON, times in seconds."
        )
        return click.argument("path", type=PATH)(_rank(_device(limit(as_json(answer)))))

    return decorate


def _seconds(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """Read a time with its unit, or plain seconds."""
    if text is None:
        return None
    read = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([a-zµ]*)", text)
    if read is None or read[2] not in _UNITS:
        raise click.BadParameter(
            sentence(
                "{text!r} is not a time; write e.g. 1ms, 500us or 0.002 (seconds)",
                text=text,
            )
        )
    return float(read[1]) * _UNITS[read[2]]


class _TraceGroup(CommandGroup):
    """``perfgate trace REC`` is ``perfgate trace show REC``."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and (
            "/" in name or "." in name or Path(name).exists()
        ):
            args = ["show", *args]
        return super().resolve_command(ctx, args)


def _settings_mention(word: bytes) -> bool:
    """Whether perfgate.toml has the word; loading it takes as long as half a recording."""
    try:
        return word in Path("perfgate.toml").read_bytes()
    except OSError:
        return False


@click.group("trace", cls=_TraceGroup)
@click.option(
    "--comm",
    multiple=True,
    metavar="PATTERN",
    help="Kernels whose names match this regular expression communicate; default: `[trace] communication` of perfgate.toml.",
)
def COMMAND(comm: tuple[str, ...]) -> None:
    """Show where the time goes in a profiler recording. PATH is any output of torch_npu.profiler, msprof or
    torch.profiler, a Chrome trace, a folder of several, or a run folder of perfgate."""
    if "numpy" not in sys.modules:
        # Otherwise numpy starts an OpenBLAS thread per CPU, a quarter of its import time; we multiply no matrices.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Nor has it to clear whole huge pages for columns, which takes longer than the page faults that they save.
        os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    if comm or _settings_mention(b"communication"):
        from perfgate.config import load_config
        from perfgate.trace.model.communication import add_communication

        add_communication(
            comm or load_config(Path(), needs_workload=False).trace.communication
        )


@COMMAND.command("show")
@_rendered_by("render_answer", "trace_answer", rows=None)
@click.option(
    "--base",
    type=PATH,
    metavar="PATH",
    help="Also show the changes since this recording.",
)
def show(path: Path, choice: Choice, base: Path | None) -> AnswerDocument:
    """Show the first things to know: the device's bottleneck, the most expensive operators and lines, overlaps.

    The same as ``perfgate trace PATH``. With --base also the changes since another recording.
    """
    from perfgate.flows.trace.answer import trace_answer

    return trace_answer(path, choice, base=base)


@COMMAND.command("top")
@_rendered_by("render_top")
@click.option(
    "--by",
    type=click.Choice(["type", "name", "shape", "line"]),
    default="type",
    show_default=True,
    help="Group rows by operator type if recorded, by name, by type and input shapes, or by the launching line.",
)
@click.option(
    "--host",
    is_flag=True,
    help="Show host operators even if the recording has a device.",
)
@click.option(
    "--longer",
    callback=_seconds,
    metavar="TIME",
    help="Only runs that took longer, e.g. 1ms; shares still refer to the total time.",
)
def top(
    path: Path, choice: Choice, by: TopKey, host: bool, longer: float | None
) -> TopDocument:
    """Rank operators and kernels by time on each device, or on the host if there is none.

    Device rows sum the time of kernels, copies and collectives; shares are of the busy time, so overlapping streams
    add up to more than 100 %. Host rows are self time. By line, a row is the innermost function of the project (else of any
    file) that launched the work, and the operator with most of its time.
    """
    from perfgate.flows.trace.trace import trace_top

    return trace_top(path, choice, by=by, host=host, longer=longer)


@COMMAND.command("gaps")
@_rendered_by("render_gaps")
@click.option(
    "--shortest",
    callback=_seconds,
    default="0",
    metavar="TIME",
    help="Leave out shorter gaps, e.g. 10us.",
)
@click.option(
    "--exposed",
    is_flag=True,
    help="Also the time in which only copies or collectives ran.",
)
def gaps(path: Path, choice: Choice, shortest: float, exposed: bool) -> GapDocument:
    """List the idle gaps of a device, longest first, with their causes.

    \b
    host             the host launched the next work only after the gap began
    synchronization  launched late because the host was waiting for the device
    queue            launched before the gap: a dependency, an event, the device's scheduling
    copy             only copies ran (with --exposed)
    communication    only collectives ran (with --exposed)
    unknown          no launch is recorded
    """
    from perfgate.flows.trace.trace import trace_gaps

    return trace_gaps(path, choice, exposed=exposed, shortest=shortest)


@COMMAND.command("steps")
@_rendered_by("render_steps")
@click.option(
    "--step-by",
    metavar="PATTERN",
    help="Steps are the annotations whose names match this regular expression; its first group names the phase.",
)
def steps(path: Path, choice: Choice, step_by: str | None) -> StepDocument:
    """How long each profiler step is: computing, communication, the exposed part of it, and free time, by rank.

    The slowest rank is the one with the longest time excluding waits for other ranks. If no steps are marked, batches of
    vLLM and SGLang are steps, prefill and decode apart.
    """
    from perfgate.flows.trace.trace import trace_steps

    return trace_steps(path, choice, step_by=step_by)


@COMMAND.command("requests")
@_rendered_by("render_requests")
@click.option("--id", "request", metavar="ID", help="Show the work of this request.")
def requests(path: Path, choice: Choice, request: str | None) -> RequestDocument:
    """List the requests of a server, longest first: host time, device time and waiting.

    Requests are identified by spans named request#ID or by a request_id argument. A request owns everything inside
    its spans and all device work launched from there; it is waiting while none of that runs.
    """
    from perfgate.flows.trace.requests import trace_requests

    return trace_requests(path, choice, request=request)


def _cluster(_: click.Context, __: click.Parameter, text: str | None) -> Cluster | None:
    from perfgate.flows.trace.executors import read_cluster

    if text is None:
        return None
    return read_cluster(text)


def _places(
    _: click.Context, __: click.Parameter, texts: tuple[str, ...]
) -> list[Place]:
    from perfgate.flows.trace.gathering import place_of

    return [place_of(text) for text in texts]


def _many_recordings(command: _Command) -> _Command:
    """Add the folders of recordings, and the processes that read them."""
    places = click.argument(
        "places", metavar="PATH...", nargs=-1, required=True, callback=_places
    )
    workers = click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Number of recordings to read at once; default: one per CPU.",
    )
    on = click.option(
        "--on",
        metavar="CLUSTER",
        callback=_cluster,
        help="Read on the workers of a cluster: ray://HOST:PORT, dask://HOST:PORT, or slurm.",
    )
    return places(workers(on(command)))


@COMMAND.command("ranks")
@_many_recordings
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    default=_SHOWN,
    show_default=True,
    help="Number of ranks to show.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, times in seconds.")
@click.option(
    "--out",
    type=FILE,
    metavar="FILE",
    help="Also write a page: heat maps of ranks, links and arrivals, and the ranks' timelines.",
)
@click.option(
    "--rank",
    "chosen",
    type=click.IntRange(min=0),
    metavar="N",
    multiple=True,
    help="Draw the timeline of this rank.",
)
@language_option
@click.option(
    "--strict",
    is_flag=True,
    help="End at a recording that cannot be read, instead of listing it.",
)
def ranks(
    places: list[Place],
    workers: int | None,
    on: Cluster | None,
    limit: int,
    as_json: bool,
    out: Path | None,
    chosen: tuple[int, ...],
    language: str | None,
    strict: bool,
) -> None:
    """Find the rank that delays the others, by how much and why, and slow links, among all recordings below PATH.

    Collectives are joined by group and aligned at their ends, so no clocks are compared. A rank is blamed for the time it
    takes longer than the median rank between two collectives, if that costs 1 % of the job. A link is slow if it carries
    less than half the median of similar links in similar operations of 1 MB or more. A recording that cannot be read is
    listed. `perfgate trace reduce` keeps a table with the extracted data next to each recording, so the next run is fast.

    With --on, workers of a cluster read the recordings. PATH must be the same on every node, or file://HOST/PATH for a folder
    on the disk of one node. Exit code 4 if the cluster cannot be used.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows.trace.ranks import trace_ranks

    with TerminalProgress() as progress:
        document = trace_ranks(
            places, workers=workers, on=on, say=progress.status, strict=strict
        )
    if out is not None:
        from perfgate.document.files import write_text_atomically
        from perfgate.flows.trace.ranks_page import drawn_ranks
        from perfgate.judging.report.render.timeline import render_ranks_page

        page = render_ranks_page(
            drawn_ranks(document, chosen), _page_language(language)
        )
        write_text_atomically(out, page)
        click.echo(str(out), err=as_json)
    if as_json:
        return print_json(document.document)
    from perfgate.judging.report.render.trace import render_ranks

    render_ranks(document.document, _console(), shown=limit)
    return None


@COMMAND.command("reduce")
@_many_recordings
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    help="Keep the tables in this folder, if the folder of the recordings is read-only.",
)
def reduce(
    places: list[Place], workers: int | None, on: Cluster | None, out: Path | None
) -> None:
    """Write a small table next to every recording below PATH, for ``perfgate trace ranks`` here or elsewhere.

    Recordings of many machines need not be collected: reduce them in place and copy the tables into one folder, or with
    --on let the workers of a cluster reduce them, as with ``perfgate trace ranks``.
    """
    from perfgate.cli.progress import TerminalProgress
    from perfgate.flows.trace.gathering import trace_reduce

    with TerminalProgress() as progress:
        reduced = trace_reduce(
            places, workers=workers, on=on, say=progress.status, out=out
        )
    for file in reduced.files:
        click.echo(file)
    for omission in reduced.left_out:
        click.echo(sentence("left out: {reason}", reason=omission.reason), err=True)
    if reduced.notes:
        from perfgate.judging.report.text.messages import word

        for note in reduced.notes:
            click.echo(word(note), err=True)


@COMMAND.command("diff")
@click.argument("base", type=PATH)
@_rendered_by("render_diff", "trace_diff")
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    metavar="SHARE",
    help="Times that differ by no more than this share are the same; default 0.05.",
)
@click.option(
    "--by",
    type=click.Choice(["operator", "line"]),
    default="operator",
    show_default=True,
    help="One row an operator or kernel, or all that one Python function launched.",
)
@click.option(
    "--base",
    "bases",
    type=PATH,
    multiple=True,
    help="Another recording of base, to show the spread of runs.",
)
@click.option(
    "--head", "heads", type=PATH, multiple=True, help="Another recording of head."
)
def diff(
    path: Path,
    choice: Choice,
    base: Path,
    tolerance: float | None,
    by: DiffKey,
    bases: tuple[Path, ...],
    heads: tuple[Path, ...],
) -> DiffDocument:
    """Compare PATH with BASE: operators and kernels added, removed, replaced, run more often, or slower.

    Rows are matched by name, shapes and calling function, or by fewer of these if one changed; kernels that replace others
    under the same operator and line make one row. Times are per call or profiler step; on the host, self time. Two
    recordings of the same program differ too: with several of each side (--base, --head) every difference has its range,
    and times whose ranges overlap are the same. Use perfgate check for a measured comparison.
    """
    from perfgate.flows.trace.diff import TOLERANCE, trace_diff

    if tolerance is None:
        tolerance = TOLERANCE
    return trace_diff(
        [base, *bases], [path, *heads], choice, tolerance=tolerance, by=by
    )


@COMMAND.command("flame")
@click.argument("path", type=PATH)
@click.option(
    "--head",
    type=PATH,
    metavar="PATH",
    help="A second recording; PATH is then the base, and the graph shows the differences.",
)
@_rank
@_device
@click.option(
    "--format",
    "wanted",
    type=click.Choice(["html", "speedscope", "collapsed"]),
    default="html",
    show_default=True,
    help="A page; speedscope's JSON; lines for flamegraph.pl.",
)
@click.option(
    "--out",
    type=FILE,
    metavar="FILE",
    help="Output file; default flame.html, standard output for the other formats.",
)
@language_option
def flame(
    path: Path,
    head: Path | None,
    rank: int | None,
    device: int | None,
    wanted: FlameFormat,
    out: Path | None,
    language: str | None,
) -> None:
    """Draw a flame graph: Python functions, operators, and device work under the calls that launched it.

    The page is one self-contained file: zoom, search by text or pattern, threads and streams, requests (spans named
    request#ID), base against head. For the folder of a check it shows both sides.
    """
    from perfgate.flows.trace.flame import trace_flame
    from perfgate.flows.trace.trace import Choice

    def print_note(message: Message) -> None:
        from perfgate.judging.report.text.messages import word

        click.echo(word(message), err=True)

    spoken = _page_language(language)
    _import_meanwhile("perfgate.judging.report.render.flame", "perfgate.document.files")
    trees = trace_flame(path, head, Choice(rank=rank, device=device), note=print_note)
    from perfgate.document.files import write_text_atomically
    from perfgate.judging.report.render.flame import flame_text

    text = flame_text(trees, wanted, spoken)
    target = out
    if out is None and wanted == "html":
        target = Path("flame.html")
    if target is None:
        return click.echo(text, nl=False)
    write_text_atomically(target, text)
    return click.echo(str(target))


@COMMAND.command("timeline")
@click.argument("path", type=PATH)
@_rank
@_device
@click.option(
    "--out",
    type=FILE,
    metavar="FILE",
    default=Path("timeline.html"),
    show_default=True,
    help="Output file.",
)
@language_option
def timeline(
    path: Path, rank: int | None, device: int | None, out: Path, language: str | None
) -> None:
    """Draw a timeline: host threads, device streams, and idle gaps with their causes.

    The page is one self-contained file: zoom by wheel, totals of a selection, search, and export for Perfetto.
    """
    from perfgate.flows.trace.timeline import trace_timeline
    from perfgate.flows.trace.trace import Choice

    spoken = _page_language(language)
    _import_meanwhile(
        "perfgate.judging.report.render.timeline", "perfgate.document.files"
    )
    drawing = trace_timeline(path, Choice(rank=rank, device=device))
    from perfgate.document.files import write_text_atomically
    from perfgate.judging.report.render.timeline import render_timeline

    write_text_atomically(out, render_timeline(drawing, spoken))
    click.echo(str(out))


def _page_language(option: str | None) -> Language:
    """As ``report_language``, without loading the settings if the file lacks the word."""
    if not (option or "PERFGATE_LANG" in os.environ or _settings_mention(b"language")):
        return environment_language(os.environ)
    from perfgate.config import report_language

    return report_language(option, Path())


def _console() -> Any:
    from rich.console import Console

    return Console(
        emoji=False
    )  # loading the emoji names takes longer than printing a table
