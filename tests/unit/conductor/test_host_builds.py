"""Models that are built on the host once: workers copy them, if they equal those that are built on the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import WorkloadReference, load_config
from perfgate.document.message import Message, english
from perfgate.protocol import Signature, SignatureRequest
from tests.shared_bench import SharedBench
from tests.waiting import wait_until

REFERENCE = WorkloadReference("workload", "perf.py", "workload")
SETTINGS = 'project = "hosts"\nworkload = "perf.py:workload"\n'
# Every process that builds the model says so in a file beside the code.
WORKLOAD = """
import os, socket, threading, time
from pathlib import Path
import torch
from perfgate import Workload

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8, 8))
        with (Path(__file__).parent / "built.txt").open("a") as file:
            file.write(f"{{os.getpid()}}\\n")
        {build}

    def forward(self, x):
        return x @ self.weight

workload = Workload(
    build=lambda device: Model(), inputs=lambda batch, seed: torch.ones(batch, 8), host_build={host_build}
)
"""


def write(root: Path, *, build: str = "pass", host_build: bool = True) -> Checkout:
    root.mkdir(exist_ok=True)
    (root / "perf.py").write_text(WORKLOAD.format(build=build, host_build=host_build))
    (root / "perfgate.toml").write_text(SETTINGS)
    return Checkout(root, root)


def builds(checkout: Checkout) -> int:
    return len((checkout.root / "built.txt").read_text().split())


@pytest.fixture
def bench(shared_bench: SharedBench, tmp_path: Path) -> Iterator[Bench]:
    with shared_bench.configured(load_config(write(tmp_path / "project").root)) as bench:
        yield bench


@contextmanager
def built(bench: Bench, *checkouts: Checkout) -> Iterator[Message | None]:
    """Build on the host, and yield why workers build for themselves, if they do."""
    for checkout in checkouts:
        bench.host_builds.begin(checkout, REFERENCE)
        bench.load_ahead(checkout, REFERENCE)
    try:
        yield bench.host_builds.confirm({})
    finally:
        bench.let_go_ahead()
        bench.host_builds.forget()


def signature(bench: Bench, checkout: Checkout) -> Signature:
    with bench.worker(checkout, REFERENCE, cpus=bench.cpus, layout_seed=1, log_name="one") as (worker, _):
        return worker.ask(SignatureRequest(), Signature, timeout=60, doing="comparing")


def test_loading__model_built_on_the_host__several_workers_copy_it_and_end_as_others_do(
    bench: Bench, tmp_path: Path
) -> None:
    checkout = write(tmp_path / "side")
    with built(bench, checkout) as reason:
        assert reason is None
        # One on the host, and one on the device to compare it with.
        assert builds(checkout) == 2
        arguments = {"cpus": bench.cpus, "layout_seed": 1, "log_name": "one"}
        with (
            bench.worker(checkout, REFERENCE, **arguments) as (first, _),  # type: ignore[arg-type]
            bench.worker(checkout, REFERENCE, **arguments) as (second, _),  # type: ignore[arg-type]
        ):
            answers = [
                worker.ask(SignatureRequest(), Signature, timeout=60, doing="comparing") for worker in (first, second)
            ]
        assert answers[0] == answers[1]
        assert answers[0].operators == {"default": {"aten::mm": 1}}
        assert builds(checkout) == 2
        assert [worker.exited and worker.exited.exit_code for worker in (first, second)] == [0, 0]


def test_loading__two_sides__each_has_its_own_model(bench: Bench, tmp_path: Path) -> None:
    base = write(tmp_path / "base")
    head = write(tmp_path / "head", build="self.weight.data += 1")
    with built(bench, base, head) as reason:
        assert reason is None
        assert signature(bench, base).tensors != signature(bench, head).tensors
    assert (builds(base), builds(head)) == (2, 2)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "1 threads or child processes"),
        ("self.pair = socket.socketpair()", "socket"),
        ("self.weight.data *= os.getpid()", "weight has other values"),
        ("raise KeyError('key')", "KeyError"),
    ],
)
def test_confirm__model_of_the_host_cannot_be_used__says_why_and_every_worker_builds(
    bench: Bench, tmp_path: Path, build: str, expected: str
) -> None:
    checkout = write(tmp_path / "side", build=build)
    with built(bench, checkout) as reason:
        assert reason is not None
        assert expected in english(reason)
    if "raise" not in build:
        before = builds(checkout)
        signature(bench, checkout)
        assert builds(checkout) == before + 1


def test_confirm__workload_says_that_it_cannot__every_worker_builds(bench: Bench, tmp_path: Path) -> None:
    with built(bench, write(tmp_path / "side", host_build=False)) as reason:
        assert reason is not None
        assert "host_build=False" in english(reason)


def test_renew__new_servers__are_used_once_they_have_built(bench: Bench, tmp_path: Path) -> None:
    checkout = write(tmp_path / "side")
    with closing(bench.servers), built(bench, checkout):
        bench.servers.start_next(7)
        draws = bench.servers.draws

        def renewed() -> bool:
            bench.servers.renew()
            return bench.servers.draws != draws

        wait_until(renewed)
        assert builds(checkout) == 3
        signature(bench, checkout)
        assert builds(checkout) == 3
