"""The testbed: everything that must be equal for two runs to be compared, and other
useful facts.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from perfgate.document.telemetry import DeviceState
from perfgate.document.testbed import IDENTITY, Testbed, fingerprint
from perfgate.measuring.devices.device import Device
from perfgate.measuring.devices.host import text_of
from perfgate.measuring.workload.bound import POOL_SIZE

# Environment variables that change speed; their values are part of the fingerprint
# (facts of the vendors' manuals: glibc malloc tunables, OpenMP, oneDNN/MKL, CUDA,
# Ascend CANN and torch_npu).
SPEED_PREFIXES = (
    "MALLOC_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "OMP_",
    "KMP_",
    "GOMP_",
    "MKL_",
    "ONEDNN_",
    "DNNL_",
    "OPENBLAS_",
    "PYTORCH_",
    "TORCH",
    "KINETO_USE_DAEMON",
    "CUDA_",
    "CUBLAS_",
    "CUBLASLT_",
    "CUDNN_",
    "NVIDIA_TF32_OVERRIDE",
    "NCCL_",
    "ASCEND_",
    "HCCL_",
    "ACL_",
    "ACLNN_",
    "NPU_ASD_",
    "ATB_",
    "INF_NAN_MODE_",
    "TASK_QUEUE_ENABLE",
    "CPU_AFFINITY_CONF",
    "MULTI_STREAM_MEMORY_REUSE",
    "COMBINED_ENABLE",
    "HOST_CACHE_CAPACITY",
    "STREAMS_PER_DEVICE",
    "PER_STREAM_QUEUE",
    "PROF_CONFIG_PATH",
)
# Read-only facts of a job about its location, files, logs and addresses, not its speed;
# the versions of its files are among the device's properties.
_NOT_SPEED = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VERSION",
    "CUDA_CACHE_PATH",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_LOG_DIRECTORY",
    "NCCL_SOCKET_",
    "NCCL_DEBUG_FILE",
    "CUBLAS_LOGDEST_DBG",
    "CUDNN_LOGDEST_DBG",
    "TORCHELASTIC_",
    "TORCH_HOME",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "TORCHAIR_CACHE_HOME",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "ASCEND_RT_VISIBLE_DEVICES",
    "ASCEND_VISIBLE_DEVICES",
    "ASCEND_DEVICE_ID",
    "ASCEND_HOME_PATH",
    "ASCEND_TOOLKIT_HOME",
    "ASCEND_INSTALL_PATH",
    "ASCEND_OPP_PATH",
    "ASCEND_AICPU_PATH",
    "ASCEND_WORK_PATH",
    "ASCEND_CACHE_PATH",
    "ASCEND_PROCESS_LOG_PATH",
    "ACL_OP_COMPILER_CACHE_DIR",
    "HCCL_IF_",
    "HCCL_SOCKET_IFNAME",
    "HCCL_SOCKET_FAMILY",
    "HCCL_WHITELIST_FILE",
    "HCCL_NPU_SOCKET_PORT_RANGE",
    "HCCL_HOST_SOCKET_PORT_RANGE",
)
_OBSERVED_FILES = {
    "governor": Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    "aslr": Path("/proc/sys/kernel/randomize_va_space"),
    "pressure.cpu": Path("/proc/pressure/cpu"),
    "transparent_hugepages": Path("/sys/kernel/mm/transparent_hugepage/enabled"),
    "cgroup.cpu.max": Path("/sys/fs/cgroup/cpu.max"),
}


def describe_testbed(
    device: Device,
    *,
    threads: int,
    cpus: list[int],
    environ: Mapping[str, str] = os.environ,
) -> Testbed:
    comparable = {
        "device.kind": device.kind,
        "device.name": device.name,
        "machine.arch": platform.machine(),
        "machine.libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "threads": str(threads),
        "cpus": str(len(cpus)),
        "inputs": f"{POOL_SIZE} in rotation",
        "garbage collector": "off while timing",
    }
    for key, value in device.properties().items():
        comparable[f"device.{key}"] = value
    comparable |= _torch_settings()
    for name in sorted(environ):
        if name.startswith(SPEED_PREFIXES) and not name.startswith(_NOT_SPEED):
            comparable[f"env.{name}"] = environ[name]
    observed = {
        "host": platform.node(),
        "kernel": platform.release(),
        "affinity": ",".join(map(str, cpus)),
        "load": "{:.2f} {:.2f} {:.2f}".format(*os.getloadavg()),
    }
    for name, file in _OBSERVED_FILES.items():
        if text := text_of(file):
            observed[name] = text.splitlines()[0].strip()
    observed |= _device_state(device)
    return Testbed(
        fingerprint=fingerprint(comparable),
        device_kind=device.kind,
        comparable=comparable,
        observed=observed,
    )


def _torch_settings() -> dict[str, str]:
    torch = sys.modules.get("torch")
    if torch is None:
        return {}
    return {
        "torch": str(torch.__version__),
        "torch.threads": str(torch.get_num_threads()),
        "torch.default_dtype": str(torch.get_default_dtype()),
        "torch.float32_matmul_precision": str(torch.get_float32_matmul_precision()),
        "torch.deterministic": str(torch.are_deterministic_algorithms_enabled()),
    }


def _device_state(device: Device) -> dict[str, str]:
    telemetry = device.telemetry() or DeviceState()
    processes = None
    if telemetry.foreign_processes is not None:
        processes = len(telemetry.foreign_processes)
    numbers = {
        "temperature": (telemetry.temperature, "Cel"),
        "power": (telemetry.power, "W"),
        "clock": (telemetry.clock, "Hz"),
        "rated_clock": (telemetry.rated_clock, "Hz"),
        "memory_used": (telemetry.memory_used, "B"),
        "foreign_processes": (processes, "processes"),
    }
    state = {
        f"device.{name}": f"{value:g} {unit}"
        for name, (value, unit) in numbers.items()
        if value is not None
    }
    if identity := device.identity():
        state[IDENTITY] = identity
    if telemetry.health:
        state["device.health"] = telemetry.health
    return state
