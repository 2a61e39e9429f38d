"""What a worker's environment holds: an allow-list, pinned malloc settings, thread counts, a scratch home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfgate.conductor.workers.secrets import find_secrets, in_ci

# Names that may pass. No token can be among them: what is not listed does not exist for the worker. All is the runner's own: a
# change cannot set it, and what LD_PRELOAD names has been loaded into the conductor itself.
ALLOWED = frozenset({
    "PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "VIRTUAL_ENV", "TOOLCHAIN_HOME",
    "RANK_TABLE_FILE",
    # One by one: NVIDIA_API_KEY is among the names that begin so.
    "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
    "PYTORCH_NPU_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_NO_NPU_MEMORY_CACHING",
    "TASK_QUEUE_ENABLE", "CPU_AFFINITY_CONF", "MULTI_STREAM_MEMORY_REUSE", "COMBINED_ENABLE", "HOST_CACHE_CAPACITY",
    "STREAMS_PER_DEVICE", "PER_STREAM_QUEUE", "PROF_CONFIG_PATH", "KINETO_USE_DAEMON", "TORCHINDUCTOR_NPU_BACKEND",
    "HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
})  # fmt: skip
ALLOWED_PREFIXES = ("LC_", "ASCEND_", "HCCL_", "ACL_", "ACLNN_", "NPU_ASD_", "ATB_", "INF_NAN_MODE_", "TORCH_NPU_",
                    "TORCH_HCCL_", "TORCHAIR_", "OMP_", "MKL_", "ONEDNN_", "NCCL_", "GLOO_", "CUDA_", "CUBLAS_",
                    "CUBLASLT_", "CUDNN_")  # fmt: skip

# Where compilers of operators and graphs keep what they made, unless in the home: ASCEND_CACHE_PATH, and before it
# ACL_OP_COMPILER_CACHE_DIR, before $HOME/atc_data (hiascend.com, CANN 9.0, "ASCEND_CACHE_PATH"); torchair; torch's
# inductor, triton and extensions; CUDA's. Kernels there may come from an earlier change.
KERNEL_CACHES = (
    "ACL_OP_COMPILER_CACHE_DIR", "ASCEND_CACHE_PATH", "CUDA_CACHE_PATH", "TORCHAIR_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "TUNE_BANK_PATH", "XDG_CACHE_HOME",
)  # fmt: skip

# glibc gives memory back to the kernel and takes it again, page fault by page fault, on every call of some models; the same
# process then has a speed level of its own, by luck. Keeping the memory removes that luck: no mmap of its own for any block
# (a threshold instead is cut at 32 MiB by glibc), never trim, grow in large pieces.
# Minor faults and milliseconds per call, one thread, torch 2.13, glibc 2.36:
#                                          conv stack 4x3x112x112     conv 4x3x224x224, output of 51 MB
#   no setting                                   8038, 25.3                    37635, 73.9
#   threshold 32 MiB, trim 4 GiB                    0, 13.2                    37635, 79.8
#   threshold 32 MiB, trim 4 GiB, pad 256 MiB       0, 13.0                     5959, 21.9
#   these                                          78, 12.9 (the heap still grew) 0, 20.4
MALLOC_SETTINGS = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 * 1024**3),
    "MALLOC_TOP_PAD_": str(256 * 1024**2),
}
# OpenMP threads that wait by spinning burn the time slice that the thread they wait for needs: on a machine where one of two
# CPUs is shared, a call of 2 ms took 400 ms (median, 2 threads, torch 2.13), with passive waiting 6 ms. It costs a small model
# on idle CPUs (2.0 against 2.6 ms), so whoever serves with another policy sets it for the command, and it is recorded.
WAIT_POLICY = {"OMP_WAIT_POLICY": "PASSIVE"}


# torch since 2.5 imports torch_npu by itself where it is installed, and so cannot be imported where CANN is missing, though
# nobody asked for an NPU ("Failed to load the backend extension: torch_npu", torch 2.13 with torch_npu 2.13.0).
AUTOLOADED_KIND = "npu"
NO_AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}


def worker_environment(
    environ: Mapping[str, str],
    *,
    device: str,
    scratch: Path,
    threads: int,
    hash_seed: int,
    pass_env: list[str],
    reuse_caches: bool = False,
) -> dict[str, str]:
    """Return the environment of the fork server and so of every worker.

    ``device`` is the configured one, such as ``npu:1``; ``pass_env`` are further names the project asks for in
    perfgate.toml; a token is none of them, whoever asks.
    """
    withheld = {*find_secrets(environ).names, *fresh_caches(environ, reuse=reuse_caches, pass_env=pass_env)}
    allowed = {
        name: value
        for name, value in environ.items()
        if (name in ALLOWED or name.startswith(ALLOWED_PREFIXES) or name in pass_env) and name not in withheld
    }
    return {
        **WAIT_POLICY,
        **allowed,
        **({} if device_kind(device) == AUTOLOADED_KIND else NO_AUTOLOAD),
        **MALLOC_SETTINGS,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": str(hash_seed % 2**32),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def fresh_caches(environ: Mapping[str, str], *, reuse: bool, pass_env: list[str]) -> list[str]:
    """Return which variables workers do not get, so that every CI job begins with empty kernel caches, in its scratch home.

    On a developer's machine they are the developer's own; and a project may ask for them, all or by name.
    """
    if reuse or not in_ci(environ):
        return []
    return [name for name in KERNEL_CACHES if environ.get(name) and name not in pass_env]


def reused_caches(environment: Mapping[str, str]) -> list[str]:
    """Return the variables by which workers reach kernels that an earlier job may have left."""
    return [name for name in KERNEL_CACHES if environment.get(name)]


def device_kind(device: str) -> str:
    """Return the kind of a configured device: that of ``npu:1`` is ``npu``."""
    return device.partition(":")[0]
