"""Real clusters on this machine: Ray with two nodes, Dask with three workers, Slurm with one node of two CPUs."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from perfgate.system.processes import die_with_parent
from tests.waiting import wait_until

HOST = socket.gethostname()
# Ray takes minutes to start where other processes have most of the CPU.
_SECONDS = 600.0
# Its head starts a server for each client, which imports Ray, and gives it half a minute by default. As long a raylet waits for
# its agents, and `ray start` for the raylet (src/ray/common/ray_config_def.h).
_RAY_LIMITS = {
    "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "300",
    "RAY_CLIENT_MAX_CONNECTION_TIMEOUT_S": "300",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_health_check_timeout_ms": "60000",
}
# The agents of a node choose their ports by default, and the raylet aborts if it does not learn one of them within 15 seconds,
# which no setting changes (ray-project/ray, issue 65983). It waits for none that it is given. `ray start` keeps that of the
# dashboard's agent from it, so the file in which the agent would tell it is written for it (ray/_private/services.py,
# start_raylet; ray/dashboard/agent.py, persist_port).
_RAY_PORTS = (
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "runtime-env-agent-port",
    "metrics-export-port",
)
_RAY_SESSIONS, _RAY_PORT_FILE = Path("/tmp/ray"), "dashboard_agent_listen_port_{node}"
# As `ray start` reports success.
_RAY_IS_UP = "Ray runtime started"
_RAY_STARTS = 2
_SLURM = """ClusterName=perfgate
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


class RunningCluster(NamedTuple):
    """``on`` is the value of ``--on``, ``environment`` what a command needs besides to use it."""

    on: str
    environment: Mapping[str, str]


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _start(stack: ExitStack, command: list[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program that ends with the stack, and with the process of the tests."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env=dict(environment),
            preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - no other thread is started yet
        )
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def running_ray(folder: Path, environment: Mapping[str, str]) -> Iterator[RunningCluster]:
    """A head and another node."""
    pytest.importorskip("ray", reason="make test-cluster installs ray")
    port, client = _free_port(), _free_port()
    head = ["--head", f"--port={port}", f"--ray-client-server-port={client}", "--include-dashboard=false"]
    environment = {**environment, **_RAY_LIMITS, "PYTHONUNBUFFERED": "1"}
    with ExitStack() as stack:
        session = _start_ray(stack, [*head, "--node-ip-address=127.0.0.1"], folder / "head.log", environment)
        wait_until(lambda: _accepts(client), _SECONDS)
        _start_ray(stack, [f"--address=127.0.0.1:{port}"], folder / "node.log", environment, session)
        yield RunningCluster(f"ray://127.0.0.1:{client}", _RAY_LIMITS)


def _start_ray(
    stack: ExitStack, options: list[str], log: Path, environment: Mapping[str, str], session: str = ""
) -> str:
    """Start a node of Ray, and once more if it gave up. ``ray start --block`` ends all that it started when it is ended.

    ``session`` is a pattern of the folder of the head's session, which a head returns.
    """
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats", "--num-cpus=2"]
    # Room for few objects, and sockets below a short path (unix(7): 108 bytes).
    command += ["--object-store-memory=80000000", *options]
    for _ in range(_RAY_STARTS):
        ports = [f"--{name}={_free_port()}" for name in _RAY_PORTS]
        node = secrets.token_hex(28)
        process = _start(stack, [*command, *ports], log, {**environment, "RAY_OVERRIDE_NODE_ID_FOR_TESTING": node})
        sessions = session or f"session_*_{process.pid}"
        wait_until(partial(_has_decided, process, log, sessions, node), _SECONDS)
        if process.poll() is None:
            return sessions
    raise AssertionError(log.read_text())


def _has_decided(process: subprocess.Popen[bytes], log: Path, sessions: str, node: str) -> bool:
    """Whether a node of Ray is up or gave up; its raylet is told the port that it waits for."""
    for folder in _RAY_SESSIONS.glob(sessions):
        with suppress(FileExistsError), (folder / _RAY_PORT_FILE.format(node=node)).open("x") as file:
            file.write("-1")  # as the agent of an installation without the dashboard does
    return _RAY_IS_UP in log.read_text() or process.poll() is not None


@contextmanager
def running_dask(folder: Path, environment: Mapping[str, str]) -> Iterator[RunningCluster]:
    """A scheduler and three worker processes, which their nannies start again when they die."""
    distributed = pytest.importorskip("distributed", reason="make test-cluster installs distributed")
    port = _free_port()
    dask = [sys.executable, "-m", "dask"]
    scheduler = [*dask, "scheduler", "--host=127.0.0.1", f"--port={port}", "--no-dashboard"]
    workers = [*dask, "worker", f"tcp://127.0.0.1:{port}", "--nworkers=3", "--nthreads=1", "--no-dashboard"]
    with ExitStack() as stack:
        _start(stack, scheduler, folder / "scheduler.log", environment)
        wait_until(lambda: _accepts(port), _SECONDS)
        _start(stack, [*workers, f"--local-directory={folder}"], folder / "workers.log", environment)
        with distributed.Client(f"tcp://127.0.0.1:{port}", set_as_default=False) as client:
            client.wait_for_workers(3, timeout=_SECONDS)
        yield RunningCluster(f"dask://127.0.0.1:{port}", {})


@contextmanager
def running_slurm(folder: Path, environment: Mapping[str, str]) -> Iterator[RunningCluster]:
    """munged, slurmctld and slurmd of Debian's slurm-wlm and munge, which only root can start."""
    pytest.importorskip("submitit", reason="make test-cluster installs submitit")
    for program in ("munged", "slurmctld", "slurmd"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            pytest.skip(f"{program} is not installed: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("slurmctld and slurmd are started as root")
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    conf = folder / "slurm.conf"
    conf.write_text(_SLURM.format(host=HOST.split(".")[0], controller=_free_port(), daemon=_free_port(), folder=folder))
    own = {"SLURM_CONF": str(conf), "PATH": f"{environment['PATH']}:/usr/sbin"}
    known = {**environment, **own}
    # All of its files in one folder, which others may write: it is a scratch folder of the test.
    munged = ["/usr/sbin/munged", "--foreground", "--force", f"--socket={folder}/munge.socket", f"--key-file={key}"]
    munged += [f"--{name}-file={folder}/munge.{name}" for name in ("log", "pid", "seed")]
    with ExitStack() as stack:
        _start(stack, munged, folder / "munged.out", known)
        wait_until((folder / "munge.socket").exists, _SECONDS)
        _start(stack, ["slurmctld", "-D"], folder / "slurmctld.out", known)
        _start(stack, ["slurmd", "-D", "-N", HOST.split(".")[0]], folder / "slurmd.out", known)
        wait_until(partial(_has_idle_node, known), _SECONDS)
        yield RunningCluster("slurm", own)


def _has_idle_node(environment: Mapping[str, str]) -> bool:
    command = ["sinfo", "--noheader", "--format=%t"]
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    return done.stdout.strip() == "idle"


STARTED = {"ray": running_ray, "dask": running_dask, "slurm": running_slurm}
