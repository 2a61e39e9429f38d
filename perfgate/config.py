"""perfgate.toml and the environment, read once into one frozen Config."""

from __future__ import annotations

import difflib
import fnmatch
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, inspect

from perfgate.catalogue.lookup import GATING_LIMITS, LIMITS, METRICS
from perfgate.catalogue.names import SUBROUTINE_TIMES
from perfgate.document.budget import Budget, parse_budget, parse_place
from perfgate.document.decision import DEFAULT_LOOKS, MOST_LOOKS, Policy, Unmeasured
from perfgate.errors import ConfigError
from perfgate.job_settings import (
    NAME,
    JobReference,
    JobSettings,
    NumberSettings,
    SlaSettings,
    check_job,
)
from perfgate.load_settings import Lengths, LoadSettings, Seconds, Text, doc
from perfgate.locale import LANGUAGES, Activity, Language, environment_language
from perfgate.project import CONFIG_NAME as CONFIG_NAME  # noqa: PLC0414 - it is looked for here
from perfgate.project import choices, projects_below
from perfgate.toml import tomllib

# The files that define a project's packages, if it has them. Of pyproject.toml only the
# dependencies count.
REQUIREMENTS = (
    "requirements*.txt",
    "requirements/*.txt",
    "constraints*.txt",
    "pyproject.toml",
    "uv.lock",
    "poetry.lock",
    "pdm.lock",
    "pylock*.toml",
    "Pipfile.lock",
    "environment.yml",
    "conda-lock.yml",
)
# Files that a workload hardly reads: text about the project, and files of the forge and
# of CI hosts that run no gate. Any other text may be a prompt or a table. One of these
# that the code names, or that a measured process has read, counts all the same.
DOCUMENTATION = (
    "README*",
    "CHANGELOG*",
    "CONTRIBUTING*",
    "LICENSE*",
    "/docs/**",
    "/doc/**",
    "!*.py",
)
CI_FILES = (
    "/.github/**",
    "!/.github/workflows/",
    "!/.github/actions/",
    "/.gitlab/issue_templates/",
    "/.gitlab/merge_request_templates/",
    "/.circleci/",
    "/.travis.yml",
    "/azure-pipelines.yml",
)

# torch_npu launches from a separate thread next to Python's (TASK_QUEUE_ENABLE),
# autograd runs in a third: on one CPU they would wait for each other and every call
# would look host-bound.
ACCELERATOR_CPUS = 4
# The rule cannot reach its error with fewer pairs.
FEWEST_PAIRS = 8
_DAY = 86_400.0

# The name is part of an artifact's name, and `perfgate-KEY-judged-ATTEMPT` is what the
# publishing job uploads itself.
TESTBED_NAME = re.compile(r"(?!judged$)[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
TestbedDevice = Literal["cpu", "npu", "cuda"]
# One comment has room for this many.
MOST_TESTBEDS = 12

Count = Annotated[int, Meta(ge=0)]
Pairs = Annotated[int, Meta(ge=FEWEST_PAIRS)]
Chance = Annotated[float, Meta(gt=0, lt=0.5)]
Share = Annotated[float, Meta(ge=0, lt=1)]
# Each copy takes the memory of a model.
MOST_COPIES = 64


class MeasureSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How worker processes run."""

    threads: Annotated[Count, doc("Threads of torch. 0: one for each granted CPU.")] = 0
    python_path: Annotated[
        list[str],
        doc("Folders of the project that are put on Python's path, where they exist."),
    ] = msgspec.field(default_factory=lambda: [".", "src"])
    preload: Annotated[
        list[str],
        doc(
            "Modules that are imported once, before workers are forked. `[]`: every worker imports for itself."
        ),
    ] = msgspec.field(default_factory=lambda: ["torch"])
    pass_env: Annotated[
        list[str],
        doc(
            "Environment variables that workers see in addition to the usual few. Never name a token."
        ),
    ] = []
    link: Annotated[
        list[str],
        doc(
            "Paths that git ignores and the model needs, such as weights. Both checkouts get a link to them."
        ),
    ] = []
    requirements: Annotated[
        list[str],
        doc(
            "Patterns of the files that define dependencies. Where they differ between base and head, `setup` runs."
        ),
    ] = msgspec.field(default_factory=lambda: list(REQUIREMENTS))
    setup: Annotated[
        str,
        doc(
            "The shell command that installs the dependencies of one side into a separate virtual environment."
        ),
    ] = ""
    setup_timeout: Annotated[Seconds, doc("Seconds that `setup` may take.")] = 1800.0
    inherit_packages: Annotated[
        bool,
        doc(
            "Whether such an environment sees the packages of the running Python after its own."
        ),
    ] = True
    load_timeout: Annotated[
        Seconds, doc("Seconds that loading the workload may take.")
    ] = 300.0
    step_timeout: Annotated[
        Seconds,
        doc(
            "Seconds that one step of the checklist, or one request of a pair, may take. A workload that takes longer "
            "in a step is taken to hang, and nothing else is measured of it."
        ),
    ] = 300.0
    steady: Annotated[
        float,
        Meta(
            ge=0,
            le=_DAY,
            description="Seconds that step 1 times the calls of each shape once they are warm, "
            "in `run` and on both sides of a check; it "
            "then says whether they stayed steady. 0: as long as quick or full mode takes.",
        ),
    ] = 0.0
    copies: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_COPIES)]
        | Annotated[list[int], Meta(min_length=2)],
        doc(
            "Numbers of copies of the workload that step 10 runs at the same time, in threads and in processes, e.g. "
            "`[1, 2, 4]`; they begin with 1 and grow. A single number stands for 1, 2, 4 and so on, up to it; 0 for none. "
            "It takes seconds for each number."
        ),
    ] = 0
    cold_start: Annotated[
        bool,
        doc(
            "Whether step 1 starts a new process that imports, loads and calls the workload, and times each part."
        ),
    ] = False
    shape_space: Annotated[
        bool,
        doc(
            "Whether step 13 tries shapes that the workload's own suggest: the edges of their sizes, and beyond."
        ),
    ] = False
    lock_clocks: Annotated[
        Count,
        doc(
            "The clock in MHz at which a GPU is locked while base and head are measured (`nvidia-smi --lock-gpu-clocks`, which "
            "needs the rights of root); afterwards it is reset. 0: not locked. A check goes by the base's value."
        ),
    ] = 0
    memory_limit: Annotated[
        Count, doc("Bytes of memory that a worker may take. 0: no limit.")
    ] = 0
    reuse_caches: Annotated[
        bool,
        doc(
            "Whether workers in CI use compiled kernels of earlier jobs. The report says so."
        ),
    ] = False
    seed: Annotated[
        int,
        Meta(
            ge=0,
            le=2**63 - 1,
            description="The seed of the inputs and of every draw of lots.",
        ),
    ] = 20201120

    @property
    def copy_counts(self) -> list[int]:
        """The requested numbers of concurrent copies, ascending; empty by default."""
        most = self.copies
        if isinstance(most, list):
            return most
        return sorted({1 << power for power in range(most.bit_length())} | {most} - {0})


class GateSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How the gate decides. Pairs of base and head are measured until a look decides.

    A check goes by the base's perfgate.toml; of `budget` and `checklist_budget` by the
    larger one of both sides.
    """

    looks: Annotated[
        list[Pairs],
        Meta(
            min_length=1,
            max_length=MOST_LOOKS,
            description="The numbers of pairs after which the gate may decide, rising.",
        ),
    ] = msgspec.field(default_factory=lambda: list(DEFAULT_LOOKS))
    budget: Annotated[
        Seconds,
        doc(
            "Seconds of pairs for each workload. Once they are spent, no pair after the second look begins, unless the pairs "
            "up to the next look are expected to decide, within as many seconds again. A workload whose two looks would "
            "take longer than this and than 300 s, by its calls and by loading it, is only counted, with the budget it needs."
        ),
    ] = 60.0
    checklist_budget: Annotated[
        float,
        Meta(
            ge=0,
            le=_DAY,
            description="Seconds for each workload in which base and head measure the steps of "
            "the checklist again in turns, "
            "in addition to the pairs and the first turn. Steps that need more are named, and shown without a "
            "difference. 0: none are compared.",
        ),
    ] = 8.0
    unmeasured: Annotated[
        Unmeasured,
        doc(
            "The verdict on a change whose code no workload runs: `skip`, `warn` or `fail`. Nothing is measured then. A change "
            "of text alone that no workload reads is always skipped."
        ),
    ] = "skip"
    aa_pairs: Annotated[
        int,
        Meta(
            ge=5,
            description="Pairs of base and base, which show the noise. They come with the "
            "first look. On an accelerator at most 4: they "
            "share one start.",
        ),
    ] = 7
    quads: Annotated[
        Annotated[int, Meta(ge=2)] | None,
        doc(
            "Groups of four blocks in a pair, each in another memory layout. Unset: 4 to 16, by what starting a pair costs."
        ),
    ] = None
    block_seconds: Annotated[
        float, Meta(gt=0, le=60, description="Seconds of calls in one block.")
    ] = 0.02
    cpus: Annotated[
        Count | None,
        doc(
            "CPUs that both sides are pinned to. 0: all granted. Unset: 1 on a CPU, 4 on an accelerator."
        ),
    ] = None
    alpha: Annotated[Chance, doc("The chance of a false alarm of the whole gate.")] = (
        0.01
    )
    alpha_ok: Annotated[
        Chance, doc('The chance of a wrong "unchanged" for one comparison.')
    ] = 0.05
    ok_margin: Annotated[
        Share | None,
        doc(
            'The slowdown that "unchanged" excludes. Unset: 1 % where time allows, else 2 %.'
        ),
    ] = None
    strict: Annotated[
        bool,
        doc(
            "Whether a count that grew fails also where calls are shown not to be slower. Copies to the host, "
            "synchronisations, graph breaks, recompilations, leaks, format conversions and lost precision always do."
        ),
    ] = False
    tolerance: Annotated[
        dict[str, float],
        doc(
            "How much worse than its base a metric may be: `METRIC`, `METRIC@WORKLOAD/SHAPE` or a pattern."
        ),
    ] = {}


class StoreSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """The store of main's runs, and the name of the main branch."""

    path: Annotated[
        str,
        doc(
            "`branch://NAME` for a branch of the project's own repository (`?remote=REMOTE` for another remote than origin), "
            "`postgresql://USER@HOST/DATABASE`, `https://HOST` of a `perfgate serve`, `sqlite:///PATH`, or a file relative to "
            "perfgate.toml. Empty: a file in the user's data folder."
        ),
    ] = ""
    main_branch: Annotated[
        str,
        doc(
            "The branch whose runs are kept and which changes are compared with. Empty: the remote's default."
        ),
    ] = ""
    keep: Annotated[
        Count,
        doc(
            "Runs of each testbed that stay, 0 for all. Recording removes the oldest once a twentieth more are there."
        ),
    ] = 2000


class ArtifactSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Where traces, flame graphs and report pages of runs and checks are kept, and for
    how long.
    """

    path: Annotated[
        str,
        doc(
            "A folder relative to perfgate.toml, or a URL of fsspec such as `s3://BUCKET/PREFIX`. Empty: they stay where CI "
            "keeps them. PERFGATE_ARTIFACTS comes first."
        ),
    ] = ""
    url: Annotated[
        str,
        doc(
            "The address under which a browser reads what lies in `path`, for links: the bucket's, or "
            "`https://HOST/artifacts` of a `perfgate serve`. Empty: with a service as `[store] path`, the "
            "service's."
        ),
    ] = ""
    keep_days: Annotated[
        Count,
        doc(
            "Days after which `perfgate store prune` removes artifacts, 0 for never. Artifacts of regressions stay."
        ),
    ] = 0
    keep_gb: Annotated[
        float,
        Meta(
            ge=0,
            description="Gigabytes (10⁹ bytes) of a project above which it removes the oldest, 0 for no limit.",
        ),
    ] = 0.0


class LimitSetting(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """A limit with more than its number."""

    value: Annotated[float | None, doc("The number. Unset: the checklist's own.")] = (
        None
    )
    gating: Annotated[bool, doc("Whether the gate fails beyond it.")] = False


class ExpectSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Requirements on the trace of every workload.

    The gate fails if they are not met.
    """

    kernels: Annotated[
        list[Text], doc("Patterns of the names of kernels or operators.")
    ] = []


class GraphSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How a trace names a compiled call."""

    spans: Annotated[
        list[Text],
        doc(
            "Parts of names: of the compiler's entry, of running the graph and, where there is one, of its native code between "
            "them. Unset: the names of the device's own compiler, on an NPU `npu_fx_compiler inference` (also with `_`), "
            "`ExecuteGraph` and `TorchNpuGraphBase::Run`."
        ),
    ] = []


class TraceSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How kernels of a trace are understood."""

    communication: Annotated[
        list[Text],
        doc(
            "Regular expressions: kernels whose names match one communicate, in addition to the known libraries' kernels."
        ),
    ] = []


class TrendSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What `perfgate trend --confirm` measures besides suspected changes."""

    bisect: Annotated[
        bool,
        doc(
            "Whether it bisects the oldest open regression of the code without a culprit, if the machine is idle."
        ),
    ] = False
    bisect_minutes: Annotated[
        int,
        Meta(
            ge=1,
            description="Minutes after which this bisection starts no further gate.",
        ),
    ] = 30


class ReportSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """How comments and reports read; documents are language-neutral."""

    language: Annotated[
        Language | None,
        doc("The language of comments, reports and the terminal; unset, the locale's."),
    ] = None


class PathSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Which files a change must touch to be measured: gitignore patterns, relative to
    the repository's root.

    perfgate.toml and the workload files always count, and so does a file that the
    workload may read, or by which `[measure] setup` installs packages, unless `ignore`
    names it without a wildcard. An unseen slowdown costs more than minutes of a machine,
    so nothing but documentation and files of other CI hosts is ignored by default.
    """

    relevant: Annotated[list[Text], doc("The files that count.")] = msgspec.field(
        default_factory=lambda: ["*"]
    )
    ignore: Annotated[
        list[Text],
        doc(
            "The files that do not count, although `relevant` names them. A text that a pattern with `!` takes in, such as "
            "`!docs/prompts/*.md`, is data: a change of it is measured, whether anything is seen to read it or not."
        ),
    ] = msgspec.field(default_factory=lambda: [*DOCUMENTATION, *CI_FILES])


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """perfgate.toml as it is written."""

    project: Annotated[
        str, doc("The name under which runs are kept. Empty: the name of the folder.")
    ] = ""
    device: Annotated[
        str,
        doc(
            "`cpu`, `npu`, `cuda`, or one of several as in `npu:1`. PERFGATE_DEVICE comes first."
        ),
    ] = "cpu"
    workload: Annotated[
        str,
        doc(
            "The only workload, as `FILE:NAME`; short for one entry of `workloads` under that name."
        ),
    ] = ""
    workloads: Annotated[
        dict[str, str | JobSettings],
        doc(
            "Several workloads: a name and `FILE:NAME` for each, or a table for a job ([jobs](jobs.md))."
        ),
    ] = {}
    limits: Annotated[
        dict[str, float | LimitSetting],
        doc(
            "Marks inside one run, by name or pattern. They inform, unless they are `gating`."
        ),
    ] = {}
    budget: Annotated[
        dict[str, float | str],
        doc(
            'What the head may be at most, or at least, whatever the base was: `"latency.p99" = "< 20 ms at 50 QPS"`.'
        ),
    ] = {}
    measure: MeasureSettings = MeasureSettings()
    gate: GateSettings = GateSettings()
    store: StoreSettings = StoreSettings()
    artifacts: ArtifactSettings = ArtifactSettings()
    expect: ExpectSettings = ExpectSettings()
    graph: GraphSettings = GraphSettings()
    trace: TraceSettings = TraceSettings()
    trend: TrendSettings = TrendSettings()
    report: ReportSettings = ReportSettings()
    paths: PathSettings = PathSettings()
    testbeds: Annotated[
        dict[str, TestbedDevice],
        doc(
            'The machines of a CI matrix and the device of each, e.g. `910b = "npu"`. `perfgate publish` joins their '
            "checks into one verdict, and a testbed that is missing is INCONCLUSIVE ([CI](ci.md))."
        ),
    ] = {}

    @property
    def functions(self) -> dict[str, str]:
        """The workloads that are functions, by name; the setting ``workload`` comes
        first.
        """
        written = {
            name: entry
            for name, entry in self.workloads.items()
            if isinstance(entry, str)
        }
        if self.workload:
            written = {self.workload.rpartition(":")[2]: self.workload, **written}
        return written


@dataclass(frozen=True)
class WorkloadReference:
    """The place of a workload: ``perf/workload.py:encoder`` is file and attribute."""

    name: str
    file: str
    attribute: str

    @property
    def text(self) -> str:
        return f"{self.file}:{self.attribute}"


class Config(ConfigFile, frozen=True, kw_only=True):
    """The settings of the project in ``root`` and of the environment, checked."""

    root: Path

    @property
    def references(self) -> tuple[WorkloadReference, ...]:
        """The workloads that are functions."""
        references = []
        for name, text in self.functions.items():
            file, _, attribute = text.rpartition(":")
            references.append(WorkloadReference(name, file, attribute))
        return tuple(references)

    @property
    def jobs(self) -> tuple[JobReference, ...]:
        jobs = []
        for name, entry in self.workloads.items():
            if isinstance(entry, JobSettings):
                jobs.append(JobReference(name, entry))
        return tuple(jobs)

    @property
    def names(self) -> list[str]:
        """The names of all workloads: first the functions, then the jobs."""
        return [reference.name for reference in self.references] + [
            job.name for job in self.jobs
        ]

    @property
    def limit_values(self) -> dict[str, float]:
        limits = _by_full_name(self.limits).items()
        return {
            name: setting.value for name, setting in limits if setting.value is not None
        }

    @property
    def gating_limits(self) -> dict[str, float]:
        gating = {
            name: setting.value
            for name, setting in _by_full_name(self.limits).items()
            if setting.gating
        }
        return {
            name: LIMITS[name].default if value is None else value
            for name, value in gating.items()
        }

    @property
    def budgets(self) -> list[Budget]:
        return [
            parse_budget(key, written, METRICS[parse_place(key).metric])
            for key, written in self.budget.items()
        ]

    def policy(self) -> Policy:
        gate = self.gate
        tolerances: dict[str, float] = {}
        for job in self.jobs:
            tolerances |= job.tolerances
        return Policy(
            alpha=gate.alpha,
            alpha_ok=gate.alpha_ok,
            ok_margin=gate.ok_margin,
            strict=gate.strict,
            unmeasured=gate.unmeasured,
            looks=list(gate.looks),
            tolerances=tolerances | gate.tolerance,
            budgets=self.budgets,
            limits=self.gating_limits,
            kernels=list(self.expect.kernels),
        )

    def pair_cpus(self) -> int:
        if self.gate.cpus is not None:
            return self.gate.cpus
        return 1 if device_kind(self.device) == "cpu" else ACCELERATOR_CPUS

    def selected(self, names: tuple[str, ...]) -> tuple[WorkloadReference, ...]:
        """The workloads named that are functions, or all of them.

        Raises ConfigError for a name that is not there.
        """
        for name in names:
            if name not in self.names:
                raise ConfigError(
                    "no workload {name!r} in {config_name}{hint}",
                    name=name,
                    config_name=CONFIG_NAME,
                    hint=_did_you_mean(name, self.names),
                )
        if not names:
            return self.references
        references = {reference.name: reference for reference in self.references}
        return tuple(references[name] for name in names if name in references)

    def selected_jobs(self, names: tuple[str, ...]) -> tuple[JobReference, ...]:
        """The jobs named, or all of them."""
        return tuple(job for job in self.jobs if not names or job.name in names)


def load_config(
    root: Path,
    *,
    device: str | None = None,
    environ: Mapping[str, str] = os.environ,
    needs_workload: bool = True,
) -> Config:
    """Read ``root/perfgate.toml``.

    ``device`` and the environment variable PERFGATE_DEVICE come before the file;
    PERFGATE_TESTBED, which a job of a CI matrix sets, selects the device of that
    testbed. Without ``needs_workload``, for recordings made elsewhere, the workload may
    be missing. Raises ConfigError with the file, the key and the remedy.
    """
    path = root / CONFIG_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if below := projects_below(root):
            raise ConfigError(
                "{path} does not exist, but there is one in {below}; name it with {choices}",
                path=path,
                below=", ".join(f"{name}/" for name in below),
                choices=choices(below),
            ) from None
        raise ConfigError(
            "{path} does not exist; `perfgate init` writes one with a workload that runs, or write it by "
            'hand: workload = "perf/workload.py:encoder", where encoder is a perfgate.Workload in that file '
            "(docs/workload.md)",
            path=path,
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "{path} cannot be read: {error}", path=path, error=error
        ) from error
    device = device or environ.get("PERFGATE_DEVICE") or None
    testbed = environ.get("PERFGATE_TESTBED", "")
    return parse_config(
        text, path, device=device, testbed=testbed, needs_workload=needs_workload
    )


def device_kind(device: str) -> str:
    """The kind of a configured device, e.g. ``npu`` for ``npu:1``."""
    return device.partition(":")[0]


def report_language(
    option: str | None, root: Path, *, environ: Mapping[str, str] = os.environ
) -> Language:
    """The language that comments and reports are written in.

    The ``option`` of the command line comes first, then the environment variable
    PERFGATE_LANG, then ``[report] language`` of ``root/perfgate.toml``, then the user's
    locale. Raises ConfigError for an unknown language.
    """
    chosen = option or environ.get("PERFGATE_LANG")
    if not chosen:
        there = (root / CONFIG_NAME).is_file()
        written = None
        if there:
            written = load_config(
                root, environ=environ, needs_workload=False
            ).report.language
        return written or environment_language(environ)
    for language in LANGUAGES:
        if chosen == language:
            return language
    raise ConfigError(
        "PERFGATE_LANG is {chosen!r}; the languages are {languages}",
        chosen=chosen,
        languages=", ".join(LANGUAGES),
    )


def parse_config(
    text: str,
    path: Path,
    *,
    device: str | None = None,
    testbed: str = "",
    needs_workload: bool = True,
) -> Config:
    """Check the text of a perfgate.toml that stands, or stood in some commit, at
    ``path``.
    """
    try:
        raw = tomllib.loads(
            text.removeprefix("\ufeff")
        )  # the mark with which editors on Windows begin a file
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        remedy = ""
        if "Unescaped" in str(error):
            remedy = "; write / in paths"
        raise ConfigError(
            "{path} is not valid TOML: {error}{remedy}",
            path=path,
            error=error,
            remedy=remedy,
        ) from error
    root = path.parent
    try:
        parsed = _checked(raw, root)
    except ConfigError as error:
        raise ConfigError("{path}: {error}", path=path, error=error) from error
    if needs_workload and not parsed.workloads and not parsed.workload:
        raise ConfigError(
            '{path} names no workload; write e.g. workload = "perf/workload.py:encoder"',
            path=path,
        )
    values = msgspec.structs.asdict(parsed)
    values |= {
        "project": parsed.project or root.resolve().name,
        "device": device or parsed.testbeds.get(testbed) or parsed.device,
    }
    return Config(root=root, **values)


def _checked(raw: dict[str, Any], root: Path) -> ConfigFile:
    """The settings of a file. Raises ConfigError with the key and the remedy."""
    _refuse_unknown(raw, ConfigFile, where="")
    for name, entry in _entries(raw.get("workloads")):
        if isinstance(entry, dict):
            _check_job(entry, place=f"workloads.{name}")
    for table in msgspec.structs.fields(ConfigFile):
        inner = raw.get(table.name)
        if isinstance(table.default, msgspec.Struct) and isinstance(inner, dict):
            _refuse_unknown(inner, type(table.default), where=f"[{table.name}] ")
    _refuse_bare_dots(raw)
    try:
        parsed = msgspec.convert(raw, ConfigFile)
    except msgspec.ValidationError as error:
        raise _refusal(error, raw) from error
    _check(parsed, root)
    return parsed


def _entries(table: object) -> Iterable[tuple[str, Any]]:
    """The entries of a table; none if the file has another kind of value there, which
    is refused with its place later.
    """
    if isinstance(table, dict):
        return table.items()
    return ()


def _refuse_bare_dots(raw: dict[str, Any]) -> None:
    """TOML reads ``latency.low = 0.05`` as a table ``latency``: give the correct form."""
    gate = dict(_entries(raw.get("gate")))
    tables = {
        "limits": raw.get("limits"),
        "budget": raw.get("budget"),
        "gate.tolerance": gate.get("tolerance"),
    }
    for name, table in tables.items():
        for key, value in _entries(table):
            if isinstance(value, dict) and name == "limits" and "." in key:
                _refuse_unknown(value, LimitSetting, where=f'[limits] "{key}": ')
            elif isinstance(value, dict):
                dotted = f"{key}.{next(iter(value), '…')}"
                raise ConfigError(
                    '[{name}] a name with a dot needs quotation marks; write "{dotted}" = …',
                    name=name,
                    dotted=dotted,
                )


def _refuse_unknown(
    table: dict[str, Any], record: type[msgspec.Struct], *, where: str
) -> None:
    names = record.__struct_fields__
    for key in table:
        if key not in names:
            raise ConfigError(
                "{where}unknown key {key!r}{hint}; known keys: {names}",
                where=where,
                key=key,
                hint=_did_you_mean(key, names),
                names=", ".join(names),
            )


def _check_job(table: dict[str, Any], *, place: str) -> None:
    """Refuse the table of a job, or one inside it, that has an unknown key or a value
    of another kind, by its place.
    """
    _refuse_unknown(table, JobSettings, where=f"[{place}] ")
    load = table.get("load")
    lengths = dict(_entries(load))
    tables: list[tuple[str, Any, type[msgspec.Struct]]] = [
        ("load", load, LoadSettings),
        ("load.input", lengths.get("input"), Lengths),
        ("load.output", lengths.get("output"), Lengths),
        ("sla", table.get("sla"), SlaSettings),
    ]
    for key, inner, record in tables:
        if isinstance(inner, dict):
            _refuse_unknown(inner, record, where=f"[{place}] {key}: ")
    for name, inner in _entries(table.get("numbers")):
        if isinstance(inner, dict):
            _refuse_unknown(inner, NumberSettings, where=f"[{place}.numbers] {name}: ")
    try:
        msgspec.convert(table, JobSettings)
    except msgspec.ValidationError as error:
        raise _refusal(error, table, place) from error
    except ConfigError as error:
        raise ConfigError("[{place}] {error}", place=place, error=error) from error


def _did_you_mean(word: str, names: Any) -> str:
    close = difflib.get_close_matches(word, list(names), n=1, cutoff=0.5)
    if close:
        return Activity("; did you mean {close!r}?", close=close[0])
    return ""


def _refusal(
    error: msgspec.ValidationError, raw: Mapping[str, Any], inside: str = ""
) -> ConfigError:
    """msgspec's "Expected `float` < 0.5 - at `$.gate.alpha`" as TOML names the place,
    with the value that stands there.

    ``raw`` is the whole file, or the table ``inside``.
    """
    expectation, _, place = str(error).partition(" - at `$.")
    if place in _REFUSALS:
        return _REFUSALS[place](raw)
    if (
        not place or "[...]" in place
    ):  # a table with the project's own names: msgspec's error does not have the entry
        if inside:
            return ConfigError("[{place}] {error}", place=inside, error=error)
        return ConfigError("{error}", error=error)
    value: Any = raw
    keys = re.findall(r"\w+", place)
    for key in keys:
        value = value[int(key)] if isinstance(value, list) else value[key]
    record: type[msgspec.Struct] = JobSettings
    table, name = inside, place.rstrip("`")
    if not inside:
        record = ConfigFile
        table, _, name = name.partition(".")
    where = table
    if name:
        where = f"[{table}] {name}"
    if expectation.startswith("Invalid enum value"):
        expected = f"`{' | '.join(_choices(record, keys))}`"
        return ConfigError(
            "{where} must be {wanted}, found {value!r}",
            where=where,
            wanted=expected,
            value=value,
        )
    expected, _, kind = expectation.removeprefix("Expected ").partition(", got ")
    if kind:
        return ConfigError(
            "{where} must be {wanted}, got {kind}, found {value!r}",
            where=where,
            wanted=expected,
            kind=kind,
            value=value,
        )
    return ConfigError(
        "{where} must be {wanted}, found {value!r}",
        where=where,
        wanted=expected,
        value=value,
    )


def _choices(record: type[msgspec.Struct], keys: Iterable[str]) -> list[str]:
    """The words that a setting may be, found by its keys from the record of its table."""
    kinds = list(_kinds(inspect.type_info(record)))
    for key in keys:
        of_key: list[inspect.Type] = []
        for kind in kinds:
            if isinstance(kind, inspect.StructType):
                for field in kind.fields:
                    if field.name == key:
                        of_key += _kinds(field.type)
        kinds = of_key
    choices: list[str] = []
    for kind in kinds:
        if isinstance(kind, inspect.LiteralType):
            choices += map(str, kind.values)
    return choices


def _kinds(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield each alternative of a type, without its description and bounds."""
    if isinstance(kind, inspect.Metadata):
        yield from _kinds(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for alternative in kind.types:
            yield from _kinds(alternative)
    else:
        yield kind


def _refused_list(raw: Mapping[str, Any]) -> ConfigError:
    return ConfigError(
        'workload must be one "FILE:NAME", found {value!r}; write several with their names below [workloads]',
        value=raw["workload"],
    )


def _refused_tolerance(raw: Mapping[str, Any]) -> ConfigError:
    tolerances = raw["gate"]["tolerance"]
    name, value = next(
        entry for entry in tolerances.items() if type(entry[1]) not in (int, float)
    )
    percent = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", str(value))
    share = 0.03
    if percent:
        share = float(percent[1]) / 100
    return ConfigError(
        '[gate.tolerance] "{name}" must be a share, found {value!r}; write {share:g} for {percent:g} %',
        name=name,
        value=value,
        share=share,
        percent=100 * share,
    )


def _refused_testbed(raw: Mapping[str, Any]) -> ConfigError:
    kinds = get_args(TestbedDevice)
    name, value = next(
        entry for entry in raw["testbeds"].items() if entry[1] not in kinds
    )
    expected = f"`{' | '.join(kinds)}`"
    return ConfigError(
        "{where} must be {wanted}, found {value!r}",
        where=f"[testbeds] {name}",
        wanted=expected,
        value=value,
    )


# Places whose refusal says more than a type.
_REFUSALS: dict[str, Callable[[Mapping[str, Any]], ConfigError]] = {
    "workload`": _refused_list,
    "gate.tolerance[...]`": _refused_tolerance,
    "testbeds[...]`": _refused_testbed,
}


def _check(parsed: ConfigFile, root: Path) -> None:
    """Refuse meaningless settings that their types allow."""
    _check_lists(parsed)
    _check_tolerances(parsed.gate.tolerance)
    _check_limits(parsed.limits)
    _check_workloads(parsed, root)
    _check_testbeds(parsed.testbeds)
    for key, written in parsed.budget.items():
        name = parse_place(key).metric
        if name not in METRICS:
            hint = _did_you_mean(name, METRICS)
            raise ConfigError(
                "[budget] unknown metric {key!r}{hint}", key=key, hint=hint
            )
        try:
            parse_budget(key, written, METRICS[name])
        except ValueError as error:
            raise ConfigError(
                "[budget] {key}: {error}", key=key, error=error
            ) from error


def _check_lists(parsed: ConfigFile) -> None:
    looks = parsed.gate.looks
    spans = parsed.graph.spans
    requirements = parsed.measure.requirements
    if looks != sorted(set(looks)):
        raise ConfigError(
            "[gate] looks must be growing numbers of pairs, found {looks}", looks=looks
        )
    if len(spans) not in (0, 2, 3):
        raise ConfigError(
            "[graph] spans must be two or three texts: of the compiler's entry, of running the "
            "graph, and of its native code; found {spans}",
            spans=spans,
        )
    paths = [Path(pattern) for pattern in requirements]
    if "" in requirements or any(
        pattern.is_absolute() or ".." in pattern.parts for pattern in paths
    ):
        raise ConfigError(
            "[measure] requirements must be patterns of files inside the project's folder, found "
            "{requirements}",
            requirements=requirements,
        )
    for pattern in parsed.trace.communication:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(
                "[trace] communication {pattern!r} is not a regular expression: {error}",
                pattern=pattern,
                error=error,
            ) from error
    counts = parsed.measure.copy_counts
    if counts and (
        counts[0] != 1 or counts != sorted(set(counts)) or counts[-1] > MOST_COPIES
    ):
        raise ConfigError(
            "[measure] copies must grow from 1 to at most {most_copies}, found {counts}; write e.g. [1, 2, 4]",
            most_copies=MOST_COPIES,
            counts=counts,
        )


def _check_tolerances(tolerances: Mapping[str, float]) -> None:
    for name, value in tolerances.items():
        # A tolerance that no comparison looks up would be as silent as a misspelt key.
        metric = parse_place(name).metric
        if not metric.startswith(
            ("ops.count:", "ops.time:", "number.", *SUBROUTINE_TIMES)
        ) and not fnmatch.filter(METRICS, metric):
            raise ConfigError(
                "[gate.tolerance] unknown metric {name!r}{hint}",
                name=name,
                hint=_did_you_mean(metric, METRICS),
            )
        if not 0 <= value < math.inf:
            raise ConfigError(
                "[gate.tolerance] {name} must not be negative or infinite, found {value}",
                name=name,
                value=value,
            )


def _check_limits(limits: Mapping[str, float | LimitSetting]) -> None:
    for key, setting in limits.items():
        if key not in LIMITS and not fnmatch.filter(LIMITS, key):
            hint = _did_you_mean(key, LIMITS)
            raise ConfigError(
                "[limits] unknown limit {key!r}{hint}", key=key, hint=hint
            )
        value = setting.value if isinstance(setting, LimitSetting) else setting
        if value is not None and not math.isfinite(value):
            raise ConfigError(
                "[limits] {key} must be a finite number, found {value}",
                key=key,
                value=value,
            )
    gating = (name for name, setting in _by_full_name(limits).items() if setting.gating)
    if unable := [name for name in gating if name not in GATING_LIMITS]:
        raise ConfigError(
            "[limits] {unable} cannot gate: run.json stores no single value for it; set a [budget] on a "
            "metric instead, or let one of these gate: {gating_limits}",
            unable=unable[0],
            gating_limits=", ".join(GATING_LIMITS),
        )


def _by_full_name(
    written: Mapping[str, float | LimitSetting],
) -> dict[str, LimitSetting]:
    """The limits that each entry stands for; the longer of two patterns counts, and a
    full name above all.
    """
    limits = {}
    for key, entry in sorted(
        written.items(), key=lambda entry: (entry[0] in LIMITS, len(entry[0]))
    ):
        setting = entry
        if not isinstance(setting, LimitSetting):
            setting = LimitSetting(value=setting)
        names = fnmatch.filter(LIMITS, key)
        if key in LIMITS:
            names = [key]
        limits.update(dict.fromkeys(names, setting))
    return limits


def _check_workloads(parsed: ConfigFile, root: Path) -> None:
    name = parsed.workload.rpartition(":")[2]
    same_name = parsed.workloads.get(name)
    is_other = isinstance(same_name, str) and same_name != parsed.workload
    if parsed.workload and is_other:
        raise ConfigError(
            "workload {name!r} is defined twice; keep `workload` or the line in [workloads]",
            name=name,
        )
    for name, text in parsed.functions.items():
        _check_reference(text, root)
        _check_name(name)
    for name, entry in parsed.workloads.items():
        if isinstance(entry, JobSettings):
            _check_name(name)
            check_job(name, entry)
    if parsed.workloads and not parsed.functions:
        _refuse_unjudged(parsed)


def _refuse_unjudged(parsed: ConfigFile) -> None:
    """Refuse the rules that nothing in a project of jobs alone is judged by."""
    rules = [
        f"[limits] {name}"
        for name, setting in _by_full_name(parsed.limits).items()
        if setting.gating
    ]
    if parsed.expect.kernels:
        rules.append("[expect] kernels")
    if rules:
        raise ConfigError(
            "{rules} judges the checklist of a workload that is a function, and every one here is a job; "
            "set a [budget] on a number of a job instead",
            rules=rules[0],
        )


def _check_reference(text: str, root: Path) -> None:
    file, colon, attribute = text.rpartition(":")
    if not text.isprintable():  # "perf\new.py" holds a line break
        raise ConfigError(
            "workload {text!r} holds an escaped character; write / in paths", text=text
        )
    if not (file and colon and attribute.isidentifier()):
        raise ConfigError(
            'workload {text!r} must read "FILE.py:NAME", e.g. "perf/workload.py:encoder"',
            text=text,
        )
    if Path(file).is_absolute() or ".." in Path(file).parts:
        raise ConfigError(
            "workload file {file!r} must be relative to {parent} and stay inside it",
            file=file,
            parent=root,
        )


def _check_testbeds(testbeds: Mapping[str, str]) -> None:
    for name in testbeds:
        if not TESTBED_NAME.fullmatch(name):
            raise ConfigError(
                "[testbeds] {name!r} must be letters, digits, '_', '-' or '.', and not 'judged'; write e.g. "
                '910b = "npu"',
                name=name,
            )
    if len(testbeds) > MOST_TESTBEDS:
        raise ConfigError(
            "[testbeds] names {count} testbeds, and one comment has room for {most}; use a second gate with "
            "another --key and perfgate.toml for the others",
            count=len(testbeds),
            most=MOST_TESTBEDS,
        )


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):  # it names files too, so no "..", no "-x"
        raise ConfigError(
            "workload name {name!r} must be letters, digits, '_', '-' or '.', a letter first",
            name=name,
        )
