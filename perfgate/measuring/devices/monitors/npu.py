"""An Ascend NPU: the usual checks, from the package to the card, each with its remedy;
and npu-smi during a run.
"""

from __future__ import annotations

from perfgate.document.doctor import FitnessCheck
from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import ClockCommands, Sensor, Watch
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.ascend.info_table import parse_info
from perfgate.measuring.devices.ascend.machine import (
    ASCEND,
    DRIVER,
    NEEDED,
    Software,
    cann_for,
    card_nodes,
    check_cann,
    check_environment,
    check_nodes,
    check_torch,
    missing_libraries,
    read_software,
    release_of,
    set_env,
)
from perfgate.measuring.devices.ascend.npu_smi import UnparsedAnswerError
from perfgate.measuring.devices.ascend.reading import (
    find_chip,
    read_processes,
    read_state,
    read_telemetry,
)
from perfgate.measuring.devices.card import check_card
from perfgate.measuring.devices.host import Host, text_of

KIND = "npu"
# torch_npu calls the script at this place relative to the msprof it finds on PATH.
_MSPROF_SCRIPT = "tools/profiler/profiler_tool/analysis/msprof/msprof.py"
# The library with which MindCluster shares one card among containers, and the file that
# loads it into every program (its manual, "soft partitioning-based virtualization").
# npu-smi shows the whole card.
_SHARING_LIBRARY, _PRELOAD = "libvruntime.so", "/etc/ld.so.preload"
_SEND = (
    "send us the output of `npu-smi info -m`, `npu-smi info` and `npu-smi info -t common -i 0` in an issue: perfgate reads "
    "every format that it was shown"
)
_SOURCE = f"source {ASCEND}/ascend-toolkit/set_env.sh (CANN 8.5 and later: source {ASCEND}/cann/set_env.sh)"


def examine(host: Host, index: int = 0) -> list[FitnessCheck]:
    """Every check of ``npu:index``; one line on a machine without any sign of an NPU."""
    software = read_software(host)
    smi = host.find_program("npu-smi", host.environ)
    if software.torch_npu is None and smi is None and not card_nodes(host):
        detail = (
            "no Ascend device: neither torch_npu nor /dev/davinci* nor npu-smi is here"
        )
        return [FitnessCheck("device npu", "unavailable", detail)]
    return [
        _check_package(software),
        _check_driver(software),
        _check_cann(software),
        *_check_libraries(host, software),
        check_nodes(host),
        *check_environment(host.environ),
        _check_msprof(host),
        *_check_output(host, index),
        *_check_card(host, index),
    ]


def open_sensor(host: Host, index: int) -> Sensor:
    chip = find_chip(index, host.run, host.environ)
    return lambda: read_state(chip, host.run, usages=True)


def clock_commands(host: Host, index: int, megahertz: int) -> ClockCommands:  # noqa: ARG001 - no tool fixes its clock
    raise UnmeasuredError(Message("device.no-clock-lock", {"device": KIND}))


def open_watch(host: Host, index: int, identity: str) -> Watch:  # noqa: ARG001 - the runtime's id is the chip's own
    chip = find_chip(index, host.run, host.environ)
    read_state(chip, host.run)
    return Watch(
        state=lambda: read_state(chip, host.run),
        processes=lambda: read_processes(chip, host.run),
    )


def _check_package(software: Software) -> FitnessCheck:
    name = "npu package"
    torch = software.torch
    torch_npu = software.torch_npu
    if torch_npu is None:
        detail = "torch_npu is not installed"
        if torch:
            detail = f"torch_npu is not installed, torch {torch} is"
        requirement = "torch torch_npu"
        if torch:
            requirement = f"torch_npu=={release_of(torch)}"
        remedy = (
            f"pip install {requirement}: the release of torch_npu must be that of torch"
        )
        return FitnessCheck(name, "unfit", detail, remedy)
    if torch is None:
        return FitnessCheck(
            name,
            "unfit",
            f"torch_npu {torch_npu} without torch",
            f"pip install torch=={release_of(torch_npu)}",
        )
    return check_torch(torch, torch_npu)


def _check_driver(software: Software) -> FitnessCheck:
    detail = f"driver {software.driver or 'unknown'}, firmware {software.firmware or 'unknown'}"
    if software.driver is None:
        detail += f": {ASCEND}/driver/version.info is not there"
        return FitnessCheck(
            "npu driver",
            "unavailable",
            detail,
            f"in a container, mount {ASCEND}/driver",
        )
    return FitnessCheck("npu driver", "ok", detail)


def _check_cann(software: Software) -> FitnessCheck:
    name = "npu cann"
    if software.cann_home is None:
        if software.cann_installed:
            home = software.cann_installed[0]
            detail = f"CANN lies in {home}, but ASCEND_HOME_PATH is not set"
            return FitnessCheck(name, "attention", detail, set_env(home))
        listed = (
            cann_for(software.torch_npu) if software.torch_npu else None
        ) or "toolkit and kernels"
        detail = f"no CANN in the environment (ASCEND_HOME_PATH), and none in {ASCEND}"
        return FitnessCheck(
            name, "attention", detail, f"install CANN {listed}, then {_SOURCE}"
        )
    if software.cann is None:
        detail = f"{software.cann_home} does not say which CANN it is (no ascend_toolkit_install.info)"
        return FitnessCheck(name, "unavailable", detail)
    if software.torch_npu is None:
        return FitnessCheck(name, "ok", f"CANN {software.cann} in {software.cann_home}")
    return check_cann(software.torch_npu, software.cann)


def _check_libraries(host: Host, software: Software) -> list[FitnessCheck]:
    checks = [FitnessCheck("npu libraries", "ok", ", ".join(NEEDED))]
    if missing := missing_libraries(host):
        home = software.cann_home or next(iter(software.cann_installed), None)
        detail = f"the dynamic linker finds no {', '.join(missing)}"
        remedy = (
            f"{set_env(home) if home else _SOURCE}, in the shell that starts perfgate"
        )
        checks = [FitnessCheck("npu libraries", "unfit", detail, remedy)]
    if missing_libraries(host, (DRIVER,)):
        folder = f"{ASCEND}/driver/lib64/driver"
        detail = f"the dynamic linker finds no {DRIVER}: no card can be opened"
        remedy = f"install the driver, or mount {ASCEND}/driver and add {folder} to LD_LIBRARY_PATH"
        checks.append(FitnessCheck("npu driver library", "attention", detail, remedy))
    return checks


def _check_msprof(host: Host) -> FitnessCheck:
    program = host.find_program("msprof", host.environ)
    if program is None:
        detail = "msprof is not on PATH: the profiler leaves no operators behind, without an error"
        return FitnessCheck("npu msprof", "attention", detail, _SOURCE)
    real = program.resolve()
    if not any(
        (folder / _MSPROF_SCRIPT).is_file() for folder in list(real.parents)[:5]
    ):
        detail = f"{real} has no {_MSPROF_SCRIPT} beside it: the profiler leaves no operators behind"
        return FitnessCheck(
            "npu msprof",
            "attention",
            detail,
            "install the whole CANN toolkit, not its runtime alone",
        )
    return FitnessCheck("npu msprof", "ok", str(real))


def _check_output(host: Host, index: int) -> list[FitnessCheck]:
    """Whether perfgate reads all that this npu-smi prints, and whether the chip is a
    whole one.
    """
    try:
        chip = find_chip(index, host.run, host.environ)
        table = parse_info(host.run(["npu-smi", "info"]))
    except UnparsedAnswerError as error:
        return [FitnessCheck("npu output", "attention", str(error), _SEND)]
    except MeasuringError:
        return []  # the check of the card gives the reason
    checks = [
        FitnessCheck(
            "npu output", "ok", f"npu-smi {table.version or 'of unknown version'}"
        )
    ]
    if table.unread:
        detail = f"npu-smi {table.version} prints what perfgate does not understand: {'; '.join(table.unread[:3])}"
        checks = [FitnessCheck("npu output", "attention", detail, _SEND)]
    listed = table.chip(chip.npu_id, chip.chip_id)
    sharing = ""
    if listed and listed.is_slice:
        sharing = f"{listed.name} is a virtual NPU: others share its card's clock and bandwidth, and npu-smi hides its load"
    elif _SHARING_LIBRARY in text_of(host.below(_PRELOAD)):
        sharing = f"{_PRELOAD} loads {_SHARING_LIBRARY}: this container has a share of its card, whose other users slow it down"
    if sharing:
        checks.append(
            FitnessCheck("npu slice", "attention", sharing, "measure on a whole card")
        )
    return checks


def _check_card(host: Host, index: int) -> list[FitnessCheck]:
    try:
        telemetry = read_telemetry(index, host.run, host.environ)
    except MeasuringError as error:
        remedy = "make npu-smi answer: then temperature, clock, health and other processes can be seen"
        return [FitnessCheck("npu card", "unavailable", str(error), remedy)]
    return check_card(KIND, telemetry)
