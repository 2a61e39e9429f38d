"""``perfgate report``: the results of a check folder or run folder in the formats that
CI hosts display.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate.config import CONFIG_NAME, report_language
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import (
    content_sha256,
    read_decision,
    read_run,
    write_atomically,
    write_text_atomically,
)
from perfgate.document.run import RunDocument
from perfgate.errors import ConfigError, DocumentError, UsageError
from perfgate.flows.shared.decision import comment_context
from perfgate.flows.shared.doors import given_file
from perfgate.flows.shared.options import FIRST_STEPS
from perfgate.flows.shared.options import exit_code as exit_code_of_run
from perfgate.git.commands import run_git
from perfgate.judging.forge.detect import detect
from perfgate.judging.forge.forge import CiEvent
from perfgate.judging.forge.runner import (
    MAX_ANNOTATIONS,
    MAX_SUMMARY_BYTES,
    OUTPUT_VARIABLE,
    SUMMARY_VARIABLE,
    annotation_command,
    append_to,
    log_lines,
    output_lines,
    outputs_path,
    summary_path,
)
from perfgate.judging.gate.verdict import exit_code
from perfgate.judging.report.render.ci import (
    Annotation,
    annotate,
    no_verdict,
    run_markdown,
    verdict_annotation,
)
from perfgate.judging.report.render.comment import render_comment
from perfgate.judging.report.render.junit import (
    junit,
    junit_of_run,
    junit_without_verdict,
)
from perfgate.judging.report.render.number_formats import (
    BENCHMARK_FILES,
    END,
    bencher_metrics,
    benchmark_entries,
    csv_table,
    openmetrics,
    parquet_table,
)
from perfgate.judging.report.view.number_rows import (
    NumberRow,
    rows_of_check,
    rows_of_run,
)
from perfgate.locale import Activity, Language

_FILES = {"decision": "decision.json", "comment": "comment.md", "report": "report.html"}
# The smallest budget for a comment: title, table and end, in the shortest form.
_SMALLEST_COMMENT = 4_000


@dataclass(frozen=True)
class ReportRequest:
    """The forms to write for ``folder``, the results of a command for ``directory``
    that exited with ``measured``.

    ``csv`` is a path, or ``-`` for the standard output; ``benchmark_action`` is the
    folder for a file of each direction.
    """

    folder: Path
    directory: Path
    outputs: bool = False
    summary: bool = False
    annotations: bool = False
    junit: Path | None = None
    openmetrics: Path | None = None
    csv: str | None = None
    parquet: Path | None = None
    bencher: Path | None = None
    benchmark_action: Path | None = None
    measured: int | None = None
    language: Language = "en"

    @property
    def asks_for_nothing(self) -> bool:
        hosts = (
            self.outputs
            or self.summary
            or self.annotations
            or self.junit
            or self.openmetrics
        )
        return not (hosts or self.asks_for_numbers)

    @property
    def asks_for_numbers(self) -> bool:
        return bool(self.csv or self.parquet or self.bencher or self.benchmark_action)


@dataclass(frozen=True)
class _Results:
    """The decision, the run or both that this very job left in the folder; ``why`` is
    set if there is neither.

    A SKIPPED decision has no run; a folder of `perfgate run` has a decision only if the
    project has rules.
    """

    decision: DecisionDocument | None = None
    run: RunDocument | None = None
    why: str = ""


def report(
    request: ReportRequest, environ: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Write every requested form; without any, print the comment.

    Raises UsageError if the host gives no file to write to, DocumentError if there is
    no result to print.
    """
    content = _find(request, environ)
    if request.asks_for_nothing:
        if content.why:
            raise DocumentError(
                "{folder}: {why}", folder=request.folder, why=content.why
            )
        say(log_lines(_markdown(content, request), environ))
    if request.outputs:
        outputs = given_file(outputs_path(environ), OUTPUT_VARIABLE, "--outputs")
        text = output_lines(_outputs(content, request))
        append_to(outputs, text, OUTPUT_VARIABLE)
    if request.summary:
        _summarise(content, request, environ)
    if request.annotations:
        for line in _annotation_lines(content, request):
            say(line)
    _write_files(content, request, say)


def _outputs(content: _Results, request: ReportRequest) -> dict[str, str]:
    """The outputs of the CI step: empty for what is not known."""
    outputs = {"verdict": "", "exit-code": "", **dict.fromkeys(_FILES, "")}
    if request.measured is not None:
        outputs["exit-code"] = str(request.measured)
    if content.decision:
        outputs["verdict"] = content.decision.verdict
        for name, file in _FILES.items():
            if (request.folder / file).is_file():
                outputs[name] = str(request.folder / file)
    return outputs


def _write_files(
    content: _Results, request: ReportRequest, say: Callable[[str], None]
) -> None:
    if request.junit:
        if content.decision is not None:
            text = junit(content.decision, request.language)
        elif content.run is not None:
            text = junit_of_run(content.run, request.language)
        else:
            text = junit_without_verdict(
                no_verdict(content.why, request.measured, request.language)
            )
        write_text_atomically(request.junit, text)
    if request.openmetrics:
        text = END
        if content.run:
            text = openmetrics(content.run, FIRST_STEPS)
        write_text_atomically(request.openmetrics, text)
    if request.asks_for_numbers:
        _write_numbers(_rows(content, request), request, say)


def _write_numbers(
    rows: Sequence[NumberRow], request: ReportRequest, say: Callable[[str], None]
) -> None:
    if request.csv == "-":
        say(csv_table(rows).rstrip("\n"))
    elif request.csv:
        write_text_atomically(Path(request.csv), csv_table(rows))
    if request.parquet:
        write_atomically(request.parquet, parquet_table(rows))
    if request.bencher:
        write_text_atomically(request.bencher, bencher_metrics(rows))
    if request.benchmark_action:
        folder = request.benchmark_action
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                "the folder {folder} cannot be made: {error}; choose another with --benchmark-action",
                folder=folder,
                error=error.strerror,
            ) from error
        for name, better in BENCHMARK_FILES.items():
            write_text_atomically(folder / name, benchmark_entries(rows, better))


def spoken_language(option: str | None, directory: Path) -> Language:
    """The language of the report.

    A broken perfgate.toml must not fail here: the report itself shows that error.
    """
    try:
        return report_language(option, directory)
    except ConfigError:
        return "en"


def _find(request: ReportRequest, environ: Mapping[str, str]) -> _Results:
    folder, event = request.folder, detect(environ)
    try:
        if (folder / _FILES["decision"]).exists():
            decision = read_decision(folder / _FILES["decision"])
            _refuse_other_code(exit_code(decision), request.measured)
            if decision.verdict == "SKIPPED":
                # A skipped change has no run; a check clears old results before it
                # writes such a decision.
                if event is not None and decision.sides.head.commit not in (
                    event.head_sha,
                    event.built_sha,
                ):
                    raise DocumentError("decision.json is about another commit")
                return _Results(decision)
            # `perfgate run` writes its run.json next to the decision.
            path = Path("run.json")
            if decision.sides.comparing != "rules" or not (folder / path).exists():
                path = Path("head", "run.json")
            head = read_run(folder / path)
            if decision.sides.head.sha256 != content_sha256(head):
                raise DocumentError("decision.json is not about {path}", path=path)
            _refuse_other_job(head, event)
            return _Results(decision, head)
        if (folder / "run.json").exists():
            run = read_run(folder / "run.json")
            _refuse_other_code(exit_code_of_run(run), request.measured)
            _refuse_other_job(run, event)
            return _Results(run=run)
    except DocumentError as error:
        return _Results(why=str(error).replace(f"{folder}/", ""))
    return _Results(why=Activity("there is no decision.json, and no run.json"))


def _refuse_other_code(code: int, measured: int | None) -> None:
    if measured is not None and code != measured:
        raise DocumentError(
            "the documents correspond to exit code {code}, but the command exited with {measured}: they are from "
            "an earlier job",
            code=code,
            measured=measured,
        )


def _refuse_other_job(run: RunDocument, event: CiEvent | None) -> None:
    if event is not None and run.session.ci != event.context():
        raise DocumentError("the documents were measured by another CI job")


def _summarise(
    content: _Results, request: ReportRequest, environ: Mapping[str, str]
) -> None:
    path = given_file(summary_path(environ), SUMMARY_VARIABLE, "--summary")
    size = 0
    if path.exists():
        size = path.stat().st_size
    room = MAX_SUMMARY_BYTES - size - 2
    text = _markdown(content, request, room)
    if len(text.encode()) > room:
        raise UsageError(
            "{path} has no room left: a step may write {most_bytes} bytes into it",
            path=path,
            most_bytes=MAX_SUMMARY_BYTES,
        )
    append_to(path, text.rstrip("\n") + "\n\n", SUMMARY_VARIABLE)


def _markdown(
    content: _Results, request: ReportRequest, room: int = MAX_SUMMARY_BYTES
) -> str:
    """The comment without its marker line, in at most ``room`` bytes if possible."""
    if content.decision is None:
        if content.run is not None:
            return run_markdown(content.run, request.language)
        return no_verdict(
            content.why, request.measured, request.language, medium="markdown"
        )
    context = comment_context(content.decision, request.language)
    text = ""
    # A character has one to four bytes.
    for share in (1, 2, 3, 4):
        text = render_comment(
            content.decision, context, budget=max(room // share, _SMALLEST_COMMENT)
        )
        if len(text.encode()) <= room:
            break
    return text.partition("\n")[2].lstrip("\n")


def _annotation_lines(content: _Results, request: ReportRequest) -> list[str]:
    if content.why:
        return [
            annotation_command(
                "error",
                "perfgate",
                no_verdict(content.why, request.measured, request.language),
            )
        ]
    if content.decision is None:
        return []
    # The path from the repository's root to the project's folder.
    place = run_git(request.directory, ["rev-parse", "--show-prefix"], {})
    prefix = ""
    if place.code == 0:
        prefix = place.output
    clone = request.directory.joinpath(*[".."] * prefix.count("/"))
    placed: list[tuple[Annotation, str, int]] = []
    for annotation in annotate(content.decision, request.language, prefix=prefix):
        location = annotation.location
        if location and _has_line(clone / location.path, location.line):
            placed.append((annotation, location.path, location.line))
    whole = verdict_annotation(content.decision, request.language)
    if not placed and whole is not None:
        placed = [(whole, prefix + CONFIG_NAME, 1)]
    lines: list[str] = []
    for entry, path, number in placed[:MAX_ANNOTATIONS]:
        at = path, number
        lines.append(annotation_command(entry.level, entry.title, entry.message, at))
    return lines


def _has_line(path: Path, line: int) -> bool:
    """Whether a file of the checkout has this line; hosts show annotations only on
    existing lines.
    """
    if (
        not path.is_file()
    ):  # user code may have left a pipe there, and opening it would block
        return False
    try:
        with path.open("rb") as file:
            return any(number == line for number, _ in enumerate(file, start=1))
    except OSError:
        return False


def _rows(content: _Results, request: ReportRequest) -> list[NumberRow]:
    """Every number of the run or check.

    Raises DocumentError if there is neither: an empty table would look like 0 rows.
    """
    if content.why:
        raise DocumentError("{folder}: {why}", folder=request.folder, why=content.why)
    decision = content.decision
    if content.run is not None and (
        decision is None or decision.sides.comparing == "rules"
    ):
        return list(rows_of_run(content.run))
    assert decision is not None, "there is a decision, or why not"
    path = request.folder / "base" / "run.json"
    base = None
    if path.exists():
        base = read_run(path)
    if base is not None and decision.sides.base.sha256 != content_sha256(base):
        raise DocumentError(
            "{folder}: decision.json is not about base/run.json", folder=request.folder
        )
    return list(rows_of_check(decision, base, content.run))
