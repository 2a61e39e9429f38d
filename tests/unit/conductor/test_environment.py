from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.conductor.workers.environment import worker_environment
from perfgate.measuring.timing.testbed import describe_testbed
from tests.fakes.device import FakeDevice


def _environment(environ: dict[str, str], pass_env: tuple[str, ...] = (), device: str = "cpu") -> dict[str, str]:
    return worker_environment(
        environ, device=device, scratch=Path("/scratch"), threads=3, hash_seed=5, pass_env=list(pass_env)
    )


def test_worker_environment__nothing_around__what_is_pinned() -> None:
    assert _environment({}) == {
        "HOME": "/scratch",
        "TMPDIR": "/scratch",
        "OMP_NUM_THREADS": "3",
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONHASHSEED": "5",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "4294967296",
        "MALLOC_TOP_PAD_": "268435456",
    }


def test_worker_environment__secrets_and_paths__only_what_is_listed_or_asked_for() -> None:
    around = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "ASCEND_RT_VISIBLE_DEVICES": "0",
        "HOME": "/home/me",
        "OMP_NUM_THREADS": "64",
        "GITHUB_TOKEN": "secret",
        "CI_JOB_TOKEN": "secret",
        "NVIDIA_API_KEY": "secret",
        "PYTHONSTARTUP": "/evil.py",
        "MODEL_CACHE": "/models",
    }
    found = _environment(around, pass_env=("MODEL_CACHE",))
    kept = {name: found[name] for name in around if name in found}
    assert kept == {
        "PATH": "/bin",
        "LC_ALL": "C",
        "ASCEND_RT_VISIBLE_DEVICES": "0",
        "HOME": "/scratch",
        "OMP_NUM_THREADS": "3",
        "MODEL_CACHE": "/models",
    }


def test_worker_environment__wait_policy_of_the_user__kept() -> None:
    assert _environment({"OMP_WAIT_POLICY": "ACTIVE"})["OMP_WAIT_POLICY"] == "ACTIVE"


@pytest.mark.parametrize(("device", "autoload"), [("cpu", "0"), ("cuda:1", "0"), ("npu", None), ("npu:3", None)])
def test_worker_environment__device__torch_npu_loads_itself_for_npus_only(device: str, autoload: str | None) -> None:
    assert _environment({}, device=device).get("TORCH_DEVICE_BACKEND_AUTOLOAD") == autoload


# torch_npu's documentation of its environment variables, CANN's list for HCCL, and what torch_npu 2.13.0 reads.
ASCEND_SPEED = {
    "TASK_QUEUE_ENABLE": "2", "ASCEND_LAUNCH_BLOCKING": "0", "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
    "PYTORCH_ALLOC_CONF": "x", "CPU_AFFINITY_CONF": "1", "MULTI_STREAM_MEMORY_REUSE": "0", "COMBINED_ENABLE": "1",
    "ACLNN_CACHE_LIMIT": "100000", "HOST_CACHE_CAPACITY": "20", "ACL_OP_COMPILER_CACHE_MODE": "enable",
    "ACL_PRECISION_MODE": "allow_mix_precision", "INF_NAN_MODE_ENABLE": "1", "INF_NAN_MODE_FORCE_DISABLE": "0",
    "TORCH_NPU_LAZY_FUSION": "1", "TORCH_NPU_USE_COMPATIBLE_IMPL": "1", "ASCEND_GLOBAL_LOG_LEVEL": "3",
    "ASCEND_SLOG_PRINT_TO_STDOUT": "0", "PYTORCH_NO_NPU_MEMORY_CACHING": "1", "STREAMS_PER_DEVICE": "32",
    "NPU_ASD_ENABLE": "1", "TORCHINDUCTOR_NPU_BACKEND": "mlir", "HCCL_CONNECT_TIMEOUT": "120", "HCCL_EXEC_TIMEOUT": "1800",
    "HCCL_ALGO": "ring", "HCCL_BUFFSIZE": "200", "HCCL_INTRA_PCIE_ENABLE": "1", "HCCL_INTRA_ROCE_ENABLE": "0",
    "HCCL_INTER_HCCS_DISABLE": "FALSE", "HCCL_OP_EXPANSION_MODE": "AIV", "HCCL_DETERMINISTIC": "true",
    "HCCL_RDMA_TC": "132", "HCCL_RDMA_SL": "4", "TORCH_HCCL_ZERO_COPY": "1", "PROF_CONFIG_PATH": "/p", "KINETO_USE_DAEMON": "1",
}  # fmt: skip
ASCEND_PLACES = {
    "ASCEND_RT_VISIBLE_DEVICES": "0,1", "ASCEND_HOME_PATH": "/usr/local/Ascend/cann-8.5.0", "ASCEND_OPP_PATH": "/opp",
    "ASCEND_TOOLKIT_HOME": "/toolkit", "ASCEND_WORK_PATH": "/work", "ASCEND_PROCESS_LOG_PATH": "/log",
    "ASCEND_AICPU_PATH": "/aicpu", "ACL_OP_COMPILER_CACHE_DIR": "/cache", "HCCL_IF_IP": "10.0.0.1",
    "HCCL_IF_BASE_PORT": "50000", "HCCL_SOCKET_IFNAME": "eth0", "TORCHAIR_CACHE_HOME": "/cache",
}  # fmt: skip


# NVIDIA's manuals (CUDA programming guide, cuBLAS, NCCL) and torch's on reproducibility.
CUDA_SPEED = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "NVIDIA_TF32_OVERRIDE": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "CUDA_MODULE_LOADING": "EAGER", "CUDA_LAUNCH_BLOCKING": "0", "CUBLASLT_WORKSPACE_SIZE": "1", "NCCL_ALGO": "Ring",
    "LD_PRELOAD": "libmspti.so",
}  # fmt: skip
CUDA_PLACES = {
    "CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_HOME": "/cuda", "CUDA_VERSION": "12.8",
    "GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0", "NVIDIA_VISIBLE_DEVICES": "all", "RANK_TABLE_FILE": "/ranks",
    "HCCL_NPU_SOCKET_PORT_RANGE": "61000-61050",
}  # fmt: skip


def test_worker_environment__settings_of_gpus_and_ranks__passed_and_those_that_change_speed_in_the_fingerprint() -> (
    None
):
    passed = _environment({**CUDA_SPEED, **CUDA_PLACES}, device="cuda")
    assert {name: passed.get(name) for name in {**CUDA_SPEED, **CUDA_PLACES}} == {**CUDA_SPEED, **CUDA_PLACES}

    compared = describe_testbed(FakeDevice(), threads=1, cpus=[0], environ=passed).comparable
    assert {name[4:] for name in compared if name.startswith("env.")} >= CUDA_SPEED.keys()
    assert not {f"env.{name}" for name in CUDA_PLACES} & compared.keys()


def test_worker_environment__settings_of_an_npu__passed_and_those_that_change_speed_in_the_fingerprint() -> None:
    passed = _environment({**ASCEND_SPEED, **ASCEND_PLACES}, device="npu")
    assert {name: passed.get(name) for name in {**ASCEND_SPEED, **ASCEND_PLACES}} == {**ASCEND_SPEED, **ASCEND_PLACES}

    compared = describe_testbed(FakeDevice(), threads=1, cpus=[0], environ=passed).comparable
    assert {name[4:] for name in compared if name.startswith("env.")} >= ASCEND_SPEED.keys()
    assert not {f"env.{name}" for name in ASCEND_PLACES} & compared.keys()


def test_fingerprint__whether_torch_loads_backends_itself__not_part_of_it() -> None:
    compared = describe_testbed(FakeDevice(), threads=1, cpus=[0], environ=_environment({})).comparable
    assert "env.TORCH_DEVICE_BACKEND_AUTOLOAD" not in compared
    assert compared["env.MALLOC_MMAP_MAX_"] == "0"
