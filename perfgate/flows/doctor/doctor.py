"""``perfgate doctor``: is this machine fit, does the gate really fire here, and how
small a slowdown can it see?
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from perfgate.conductor.machine.fitness import (
    KernelFiles,
    Machine,
    check_disk,
    examine_kernel,
    look,
    try_everything,
)
from perfgate.conductor.machine.lock import lock_path
from perfgate.conductor.workers.bench import Bench, open_bench
from perfgate.conductor.workers.environment import worker_environment
from perfgate.conductor.workers.interpreters import RUNNING, is_absent, probe_device
from perfgate.config import (
    CONFIG_NAME,
    Config,
    GateSettings,
    device_kind,
    load_config,
    parse_config,
)
from perfgate.document.doctor import (
    DoctorDocument,
    FitnessCheck,
    PlantedOutcome,
    PlantedResult,
    Resolution,
)
from perfgate.document.files import read_decision, read_run
from perfgate.document.message import Message, quote
from perfgate.document.testbed import Testbed
from perfgate.errors import (
    EXIT_FAIL,
    EXIT_INCONCLUSIVE,
    EXIT_MEASURING,
    EXIT_PASS,
    ConfigError,
    MeasuringError,
    UsageError,
)
from perfgate.flows.doctor.planted import CHANGES, PROJECT, PlantedChange, run_planted
from perfgate.flows.shared.doors import Progress
from perfgate.judging.gate.compare.effects import resolutions
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import Rules, numbers_of
from perfgate.locale import sentence, speaking, translate
from perfgate.measuring.devices.registry import device_kinds
from perfgate.version import __version__

LOOKING_SECONDS = 1.0
REQUIRED_DEVICE = "cpu"
_COMPLAINTS: dict[PlantedOutcome, str] = {
    "agrees": "",
    "differs": ", not the expected verdict: {reason}",
    "too_busy": ": this machine is too busy to decide: {reason}",
}
_VERSIONED = ("version", "driver", "firmware", "cann", "torch_npu")


def examine_machine(progress: Progress, device: str) -> list[FitnessCheck]:
    """Examine the machine for some seconds without changing it; ``device`` is the
    configured one.
    """
    progress.status(sentence("examining the machine"))
    cpus = sorted(os.sched_getaffinity(0))
    machine = Machine()
    before = look(machine, cpus)
    time.sleep(LOOKING_SECONDS)
    kernel = KernelFiles(
        machine, cpus, os.cpu_count() or len(cpus), before, look(machine, cpus)
    )
    checks = examine_kernel(kernel)
    scratch = Path(tempfile.gettempdir())
    checks.append(check_disk(shutil.disk_usage(scratch).free, scratch))
    checks += try_everything(scratch, lock_path())
    own_kind = device_kind(device)
    for kind in sorted({*device_kinds(), own_kind}):
        if kind == own_kind:
            checks += examine_device(device, progress, required=True)
        else:
            checks += examine_device(kind, progress, required=kind == REQUIRED_DEVICE)
    return checks


def read_device(folder: Path | None) -> str:
    """The device configured in the perfgate.toml of ``folder``, else of the current
    folder, else in PERFGATE_DEVICE.
    """
    root = folder or Path.cwd()
    if folder is not None or (root / CONFIG_NAME).is_file():
        return load_config(root).device
    return os.environ.get("PERFGATE_DEVICE") or REQUIRED_DEVICE


def examine_device(
    device: str, progress: Progress, *, required: bool
) -> list[FitnessCheck]:
    """Probe a device without torch, then open it; an absent device gives a single line."""
    progress.status(sentence("examining device {device}", device=device))
    with tempfile.TemporaryDirectory(prefix="perfgate-doctor-") as folder:
        environment = worker_environment(
            os.environ,
            device=device,
            scratch=Path(folder),
            threads=1,
            hash_seed=0,
            pass_env=[],
        )
        probed = probe_device(RUNNING, device, environment, cwd=Path(folder))
    if is_absent(device, probed):
        if not required:
            return probed
        remedy = Message("fitness.device-remedy")
        unfit = [replace(check, status="unfit", remedy=remedy) for check in probed]
        # Opening it shows whether this torch supports it at all.
        return [*unfit, *open_device(device, progress, required=True)]
    opened: list[FitnessCheck] = []
    if required or device_kind(device) in device_kinds():
        opened = open_device(device, progress, required=required)
    opens = any(
        check.name == f"device {device}" and check.status == "ok" for check in opened
    )
    if opens or not required:
        probed = [only_attention(check, opens) for check in probed]
    return probed + opened


def only_attention(check: FitnessCheck, opens: bool) -> FitnessCheck:
    if check.status != "unfit":
        return check
    if opens:
        check = replace(
            check, seen=Message("fitness.device-opens", {"seen": check.seen})
        )
    return replace(check, status="attention")


def open_device(
    device: str, progress: Progress, *, required: bool
) -> list[FitnessCheck]:
    """Open a device in a worker process, as a gate does; if that works, check its
    software versions too.
    """
    with tempfile.TemporaryDirectory(prefix="perfgate-doctor-") as logs:
        try:
            config = replace(_planted_config(), device=device)
            with open_bench(config, logs=Path(logs), say=progress.status) as bench:
                testbed = bench.testbed()
                loaded = watch_load(bench, device, required=required)
        except MeasuringError as error:
            return [judge_closed(device, str(error), required=required)]
    name = testbed.comparable.get("device.name", device)
    return [
        FitnessCheck(name=f"device {device}", status="ok", seen=name),
        judge_versions(device, testbed),
        *loaded,
    ]


def watch_load(bench: Bench, device: str, *, required: bool) -> list[FitnessCheck]:
    """Watch an accelerator's clock under load; for the CPU, ``examine_kernel`` reads it
    from the kernel's files.

    Only the configured device is loaded: any other card may be in use by someone else.
    """
    kind = device_kind(device)
    if kind == REQUIRED_DEVICE:
        return []
    why = Message("fitness.load-not-tried", {"kind": kind})
    if required:
        try:
            return bench.watch_load()
        except MeasuringError as error:
            why = quote(str(error).partition("\n")[0])
    return [
        FitnessCheck(name=f"{kind} clock under load", status="unavailable", seen=why)
    ]


def judge_closed(device: str, why: str, *, required: bool) -> FitnessCheck:
    """Judge a device that does not open: unfit for the CPU and the configured device,
    else only reported.
    """
    remedy = Message("fitness.device-closed-remedy")
    if device == REQUIRED_DEVICE:
        remedy = Message("fitness.torch-remedy")
    else:
        # The probe's own lines are shown above; the error repeats them after its first
        # line.
        why = why.partition("\n")[0]
    if required:
        return FitnessCheck(
            name=f"device {device}", status="unfit", seen=why, remedy=remedy
        )
    return FitnessCheck(name=f"device {device}", status="unavailable", seen=why)


def judge_versions(kind: str, testbed: Testbed) -> FitnessCheck:
    """Judge the software of a device as its worker sees it: the worker must run our own
    interpreter, with torch.
    """
    worker, torch = testbed.comparable.get("python"), testbed.comparable.get("torch")
    parts = [
        f"perfgate {__version__}",
        f"Python {worker}",
        f"torch {torch or 'missing'}",
    ]
    # Software versions from the device's probe: drivers, toolkits, firmware.
    for name, value in testbed.comparable.items():
        if name.startswith("device.") and any(word in name for word in _VERSIONED):
            parts.append(f"{name.partition('.')[2]} {value}")
    name, versions = f"versions {kind}", ", ".join(parts)
    if worker != platform.python_version():
        return FitnessCheck(
            name=name,
            status="attention",
            seen=Message(
                "fitness.versions-differ",
                {"versions": versions, "python": platform.python_version()},
            ),
            remedy=Message("fitness.versions-differ-remedy"),
        )
    if torch is None:
        return FitnessCheck(
            name, "attention", versions, Message("fitness.versions-torch-remedy")
        )
    return FitnessCheck(name=name, status="ok", seen=versions)


def is_unfit(document: DoctorDocument) -> bool:
    return any(check.status == "unfit" for check in document.fitness)


def choose_changes(names: tuple[str, ...]) -> tuple[PlantedChange, ...]:
    """The planted changes named, or all. Raises UsageError for an unknown name."""
    by_name = {change.name: change for change in CHANGES}
    for name in names:
        if name not in by_name:
            raise UsageError(
                "no planted change {name!r}; there are {by_name}",
                name=name,
                by_name=", ".join(by_name),
            )
    return tuple(change for change in CHANGES if not names or change.name in names)


def read_gate(folder: Path | None) -> GateSettings:
    """The gate's defaults, or the ``[gate]`` of the perfgate.toml in ``folder``."""
    if folder:
        return load_config(folder).gate
    return GateSettings()


def plant_changes(
    changes: tuple[PlantedChange, ...],
    settings: GateSettings,
    *,
    out: Path,
    say: Callable[[str], None],
) -> list[PlantedResult]:
    """Gate every change in a separate repository, one after the other; the check
    folders are written to ``out``.
    """
    results: list[PlantedResult] = []
    with tempfile.TemporaryDirectory(prefix="perfgate-doctor-") as scratch:
        for number, change in enumerate(changes, start=1):
            expected: str = change.verdict
            if change.metric:
                expected += f" ({change.metric})"
            say(
                sentence(
                    "[{number} of {count}] {title}: expecting {verdict}",
                    number=number,
                    count=len(changes),
                    title=translate(change.title),
                    verdict=expected,
                )
            )
            with speaking("en"):  # doctor.json is language-neutral
                result = run_planted(
                    change,
                    settings,
                    scratch=Path(scratch),
                    out=out / change.name,
                    say=say,
                )
            complaint = translate(_COMPLAINTS[result.outcome]).format(
                reason=result.reason
            )
            verdict = result.verdict or sentence("no decision")
            say(
                sentence(
                    "{verdict} in {seconds:.0f} s",
                    verdict=verdict,
                    seconds=result.seconds,
                )
                + complaint
            )
            results.append(result)
    return results


def resolutions_of(results: list[PlantedResult], out: Path) -> list[Resolution]:
    """The smallest slowdowns that the gate of unchanged code can see here; empty if it
    failed or was not run.
    """
    resolved: list[Resolution] = []
    for result in results:
        if result.metric is None and result.verdict is not None:
            folder = out / result.name
            evidence = Evidence(
                read_run(folder / "base" / "run.json"),
                read_run(folder / "head" / "run.json"),
            )
            decision = read_decision(folder / "decision.json")
            numbers = numbers_of(evidence, Rules(decision.procedure.policy))
            resolved += resolutions(numbers, evidence.timed_seconds, decision)
    return resolved


def exit_code(document: DoctorDocument) -> int:
    """4 if the machine is unfit, 1 if the gate gave a wrong verdict, 3 if the machine
    is too busy to decide, else 0.
    """
    if is_unfit(document):
        return EXIT_MEASURING
    outcomes = {result.outcome for result in document.planted}
    if "differs" in outcomes:
        return EXIT_FAIL
    if "too_busy" in outcomes:
        return EXIT_INCONCLUSIVE
    return EXIT_PASS


def _planted_config() -> Config:
    path = PROJECT / "main" / CONFIG_NAME
    try:
        return parse_config(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise ConfigError(
            "{path} is missing; reinstall perfgate",
            path=path,
        ) from error
