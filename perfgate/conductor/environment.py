"""What a worker's environment holds: an allow-list, pinned malloc settings, thread counts, a scratch home."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

# Names that may pass. No token can be among them: what is not listed does not exist for the worker.
ALLOWED = frozenset({
    "PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES", "TOOLCHAIN_HOME",
    "PYTORCH_NPU_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "TASK_QUEUE_ENABLE", "CPU_AFFINITY_CONF",
    "HF_HOME", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE",
})  # fmt: skip
ALLOWED_PREFIXES = ("LC_", "ASCEND_", "HCCL_", "ACL_", "OMP_", "MKL_", "ONEDNN_", "NCCL_")

# glibc gives memory back to the kernel and takes it again, page fault by page fault, on every call of some models; the same
# process then has a speed level of its own, by luck. Keeping the memory removes that luck. 32 MiB is the largest mmap
# threshold glibc accepts (mallopt(3), M_MMAP_THRESHOLD).
MALLOC_SETTINGS = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * 1024**2),
    "MALLOC_TRIM_THRESHOLD_": str(4 * 1024**3),
    "MALLOC_TOP_PAD_": str(256 * 1024**2),
}


def worker_environment(
    environ: Mapping[str, str], *, scratch: Path, threads: int, hash_seed: int, pass_env: list[str]
) -> dict[str, str]:
    """Return the environment of the fork server and so of every worker.

    ``pass_env`` are further names the project asks for in perfgate.toml.
    """
    allowed = {
        name: value
        for name, value in environ.items()
        if name in ALLOWED or name.startswith(ALLOWED_PREFIXES) or name in pass_env
    }
    return {
        **allowed,
        **MALLOC_SETTINGS,
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": str(hash_seed % 2**32),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
