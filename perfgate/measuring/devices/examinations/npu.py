"""An Ascend NPU: the questions of the field, from the package to the card, each with what to do."""

from __future__ import annotations

from perfgate.document.doctor import FitnessCheck, FitnessStatus
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.ascend.compatibility import Compatibility, cann_for, check_compatibility
from perfgate.measuring.devices.ascend.environment import card_nodes, check_environment, check_nodes
from perfgate.measuring.devices.ascend.reading import read_telemetry
from perfgate.measuring.devices.ascend.software import (
    ASCEND,
    DRIVER,
    NEEDED,
    Software,
    missing_libraries,
    read_software,
    set_env,
)
from perfgate.measuring.devices.card import check_card
from perfgate.measuring.devices.host import Host

KIND = "npu"
# torch_npu calls the script that lies beside the msprof it finds on PATH.
_MSPROF_SCRIPT = "tools/profiler/profiler_tool/analysis/msprof/msprof.py"
_STATUS: dict[str, FitnessStatus] = {"good": "ok", "unknown": "unavailable"}


def examine(host: Host, index: int = 0) -> list[FitnessCheck]:
    """Every check of ``npu:index``; one line where nothing of an NPU is here at all."""
    software = read_software(host)
    smi = host.find_program("npu-smi", host.environ)
    if software.torch_npu is None and smi is None and not card_nodes(host):
        detail = "no Ascend device: neither torch_npu nor /dev/davinci* nor npu-smi is here"
        return [FitnessCheck("device npu", "unavailable", detail)]
    torch, cann = check_compatibility(software.torch, software.torch_npu, software.cann)
    return [
        _check_package(software, torch),
        _check_versions(software),
        _check_cann(software, cann),
        *_check_libraries(host, software),
        check_nodes(host),
        *check_environment(host.environ),
        _check_msprof(host),
        *_check_card(host, index),
    ]


def _check_package(software: Software, compatibility: Compatibility) -> FitnessCheck:
    name = "npu package"
    if software.torch_npu is None:
        detail = (
            f"torch_npu is not installed, torch {software.torch} is" if software.torch else "torch_npu is not installed"
        )
        requirement = f"torch_npu=={_release(software.torch)}" if software.torch else "torch torch_npu"
        return FitnessCheck(
            name, "unfit", detail, f"pip install {requirement}: the release of torch_npu must be that of torch"
        )
    if software.torch is None:
        return FitnessCheck(
            name,
            "unfit",
            f"torch_npu {software.torch_npu} without torch",
            f"pip install torch=={_release(software.torch_npu)}",
        )
    if compatibility.match != "mismatch":
        return _judged(name, compatibility)
    # Another minor release has other symbols, and torch_npu does not load; another patch may.
    far = _release(software.torch).split(".")[:2] != _release(software.torch_npu).split(".")[:2]
    return FitnessCheck(name, "unfit" if far else "attention", compatibility.detail, compatibility.remedy)


def _check_versions(software: Software) -> FitnessCheck:
    """Show the driver's and the firmware's version."""
    versions = {"driver": software.driver, "firmware": software.firmware}
    detail = ", ".join(f"{part} {version or 'unknown'}" for part, version in versions.items())
    if software.driver is None:
        where = f"{ASCEND}/driver/version.info"
        return FitnessCheck(
            "npu driver", "unavailable", f"{detail}: {where} is not there", f"in a container, mount {ASCEND}/driver"
        )
    return FitnessCheck("npu driver", "ok", detail)


def _check_cann(software: Software, compatibility: Compatibility) -> FitnessCheck:
    name = "npu cann"
    if software.cann_home is None:
        if software.cann_installed:
            home = software.cann_installed[0]
            return FitnessCheck(
                name, "attention", f"CANN lies in {home}, but ASCEND_HOME_PATH is not set", set_env(home)
            )
        listed = (cann_for(software.torch_npu) if software.torch_npu else None) or "toolkit and kernels"
        return FitnessCheck(
            name,
            "attention",
            f"no CANN in the environment (ASCEND_HOME_PATH), and none in {ASCEND}",
            f"install CANN {listed}, then {_SOURCE}",
        )
    if software.cann is None:
        return FitnessCheck(
            name, "unavailable", f"{software.cann_home} does not say which CANN it is (no ascend_toolkit_install.info)"
        )
    if software.torch_npu is None:
        return FitnessCheck(name, "ok", f"CANN {software.cann} in {software.cann_home}")
    return _judged(name, compatibility)


def _check_libraries(host: Host, software: Software) -> list[FitnessCheck]:
    name, missing = "npu libraries", missing_libraries(host)
    if missing:
        home = software.cann_home or next(iter(software.cann_installed), None)
        checks = [
            FitnessCheck(
                name,
                "unfit",
                f"the dynamic linker finds no {', '.join(missing)}",
                f"{set_env(home) if home else _SOURCE}, in the shell that starts perfgate",
            )
        ]
    else:
        checks = [FitnessCheck(name, "ok", ", ".join(NEEDED))]
    if missing_libraries(host, (DRIVER,)):
        folder = f"{ASCEND}/driver/lib64/driver"
        checks.append(
            FitnessCheck(
                "npu driver library",
                "attention",
                f"the dynamic linker finds no {DRIVER}: no card can be opened",
                f"install the driver, or mount {ASCEND}/driver and add {folder} to LD_LIBRARY_PATH",
            )
        )
    return checks


def _check_msprof(host: Host) -> FitnessCheck:
    name, program = "npu msprof", host.find_program("msprof", host.environ)
    if program is None:
        return FitnessCheck(
            name,
            "attention",
            "msprof is not on PATH: the profiler leaves no operators behind, without an error",
            _SOURCE,
        )
    real = program.resolve()
    if not any((folder / _MSPROF_SCRIPT).is_file() for folder in list(real.parents)[:5]):
        return FitnessCheck(
            name,
            "attention",
            f"{real} has no {_MSPROF_SCRIPT} beside it: the profiler leaves no operators behind",
            "install the whole CANN toolkit, not its runtime alone",
        )
    return FitnessCheck(name, "ok", str(real))


def _check_card(host: Host, index: int) -> list[FitnessCheck]:
    try:
        telemetry = read_telemetry(index, host.run, host.environ)
    except MeasuringError as error:
        return [
            FitnessCheck(
                "npu card",
                "unavailable",
                str(error),
                "make npu-smi answer: then temperature, clock, health and other processes can be seen",
            )
        ]
    return check_card(KIND, telemetry)


_SOURCE = f"source {ASCEND}/ascend-toolkit/set_env.sh (CANN 8.5 and later: source {ASCEND}/cann/set_env.sh)"


def _judged(name: str, compatibility: Compatibility) -> FitnessCheck:
    status = _STATUS.get(compatibility.match, "attention")
    return FitnessCheck(name, status, compatibility.detail, None if status == "ok" else compatibility.remedy)


def _release(version: str | None) -> str:
    """The first three numbers: 2.7.1 of 2.7.1.post2+cpu."""
    return ".".join((version or "").partition("+")[0].split(".")[:3])
