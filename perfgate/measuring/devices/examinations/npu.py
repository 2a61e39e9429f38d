"""An Ascend NPU: the questions of the field, from the package to the card, each with what to do."""

from __future__ import annotations

from perfgate.document.doctor import FitnessCheck, FitnessStatus
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.ascend.compatibility import Compatibility, cann_for, check_compatibility
from perfgate.measuring.devices.ascend.environment import check_environment
from perfgate.measuring.devices.ascend.libraries import DRIVER, NEEDED, missing_libraries
from perfgate.measuring.devices.ascend.nodes import card_nodes, check_nodes
from perfgate.measuring.devices.ascend.reading import read_telemetry
from perfgate.measuring.devices.ascend.software import ASCEND, Software, read_software, set_env
from perfgate.measuring.devices.card import check_card
from perfgate.measuring.devices.host import Host

KIND = "npu"
# torch_npu calls the script that lies beside the msprof it finds on PATH.
_MSPROF_SCRIPT = "tools/profiler/profiler_tool/analysis/msprof/msprof.py"
_STATUS: dict[str, FitnessStatus] = {"good": "ok", "unknown": "unavailable"}


def examine(host: Host, index: int = 0) -> list[FitnessCheck]:
    """Return every check of ``npu:index``; one line where nothing of an NPU is here at all."""
    software = read_software(host)
    smi = host.find_program("npu-smi", host.environ)
    if software.torch_npu is None and smi is None and not card_nodes(host):
        seen = "no Ascend device: neither torch_npu nor /dev/davinci* nor npu-smi is here"
        return [_check("device npu", "unavailable", seen)]
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


def _check_package(software: Software, found: Compatibility) -> FitnessCheck:
    name = "npu package"
    if software.torch_npu is None:
        seen = (
            f"torch_npu is not installed, torch {software.torch} is" if software.torch else "torch_npu is not installed"
        )
        wanted = f"torch_npu=={_release(software.torch)}" if software.torch else "torch torch_npu"
        return _check(name, "unfit", seen, f"pip install {wanted}: the release of torch_npu must be that of torch")
    if software.torch is None:
        return _check(name, "unfit", f"torch_npu {software.torch_npu} without torch",
                      f"pip install torch=={_release(software.torch_npu)}")  # fmt: skip
    if found.match != "mismatch":
        return _judged(name, found)
    # Another minor release has other symbols, and torch_npu does not load; another patch may.
    far = _release(software.torch).split(".")[:2] != _release(software.torch_npu).split(".")[:2]
    return _check(name, "unfit" if far else "attention", found.seen, found.remedy)


def _check_versions(software: Software) -> FitnessCheck:
    """Show the driver's and the firmware's version."""
    known = {"driver": software.driver, "firmware": software.firmware}
    seen = ", ".join(f"{what} {version or 'unknown'}" for what, version in known.items())
    if software.driver is None:
        where = f"{ASCEND}/driver/version.info"
        return _check(
            "npu driver", "unavailable", f"{seen}: {where} is not there", f"in a container, mount {ASCEND}/driver"
        )
    return _check("npu driver", "ok", seen)


def _check_cann(software: Software, found: Compatibility) -> FitnessCheck:
    name = "npu cann"
    if software.cann_home is None:
        if software.cann_installed:
            home = software.cann_installed[0]
            return _check(name, "attention", f"CANN lies in {home}, but ASCEND_HOME_PATH is not set", set_env(home))
        listed = (cann_for(software.torch_npu) if software.torch_npu else None) or "toolkit and kernels"
        return _check(name, "attention", f"no CANN in the environment (ASCEND_HOME_PATH), and none in {ASCEND}",
                      f"install CANN {listed}, then {_SOURCE}")  # fmt: skip
    if software.cann is None:
        return _check(name, "unavailable", f"{software.cann_home} does not say which CANN it is "
                      "(no ascend_toolkit_install.info)")  # fmt: skip
    if software.torch_npu is None:
        return _check(name, "ok", f"CANN {software.cann} in {software.cann_home}")
    return _judged(name, found)


def _check_libraries(host: Host, software: Software) -> list[FitnessCheck]:
    name, missing = "npu libraries", missing_libraries(host)
    if missing:
        home = software.cann_home or next(iter(software.cann_installed), None)
        checks = [_check(name, "unfit", f"the dynamic linker finds no {', '.join(missing)}",
                         f"{set_env(home) if home else _SOURCE}, in the shell that starts perfgate")]  # fmt: skip
    else:
        checks = [_check(name, "ok", ", ".join(NEEDED))]
    if missing_libraries(host, (DRIVER,)):
        folder = f"{ASCEND}/driver/lib64/driver"
        checks.append(_check("npu driver library", "attention", f"the dynamic linker finds no {DRIVER}: no card can be opened",
                             f"install the driver, or mount {ASCEND}/driver and add {folder} to LD_LIBRARY_PATH"))  # fmt: skip
    return checks


def _check_msprof(host: Host) -> FitnessCheck:
    name, found = "npu msprof", host.find_program("msprof", host.environ)
    if found is None:
        return _check(name, "attention", "msprof is not on PATH: the profiler leaves no operators behind, without an error",
                      _SOURCE)  # fmt: skip
    real = found.resolve()
    if not any((folder / _MSPROF_SCRIPT).is_file() for folder in list(real.parents)[:5]):
        return _check(name, "attention", f"{real} has no {_MSPROF_SCRIPT} beside it: the profiler leaves no operators behind",
                      "install the whole CANN toolkit, not its runtime alone")  # fmt: skip
    return _check(name, "ok", str(real))


def _check_card(host: Host, index: int) -> list[FitnessCheck]:
    try:
        telemetry = read_telemetry(index, host.run, host.environ)
    except MeasuringError as error:
        return [_check("npu card", "unavailable", str(error), "make npu-smi answer: then temperature, clock, health and other "
                       "processes can be seen")]  # fmt: skip
    return check_card(KIND, telemetry)


_SOURCE = f"source {ASCEND}/ascend-toolkit/set_env.sh (CANN 8.5 and later: source {ASCEND}/cann/set_env.sh)"


def _judged(name: str, found: Compatibility) -> FitnessCheck:
    return _check(name, _STATUS.get(found.match, "attention"), found.seen, found.remedy)


def _release(version: str | None) -> str:
    """Return the first three numbers: 2.7.1 of 2.7.1.post2+cpu."""
    return ".".join((version or "").partition("+")[0].split(".")[:3])


def _check(name: str, status: FitnessStatus, seen: str, remedy: str | None = None) -> FitnessCheck:
    return FitnessCheck(name=name, status=status, seen=seen, remedy=None if status == "ok" else remedy)
