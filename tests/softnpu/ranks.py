"""One rank of a job on software NPUs: `python ranks.py PART...`; RANK, WORLD_SIZE and MASTER_* say which."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch_npu

RANK = int(os.environ["RANK"])


def values(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32).npu()


def collectives() -> None:
    """Every collective torch.distributed offers, with the values it must give."""
    size = dist.get_world_size()
    total = size * (size + 1) / 2
    x = values(RANK + 1.0, 2.0)
    dist.all_reduce(x)
    assert x.tolist() == [total, 2.0 * size]
    x = values(RANK + 1.0)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    assert x.tolist() == [size]
    x = values(RANK + 1.0)
    dist.reduce(x, dst=1)
    assert RANK != 1 or x.tolist() == [total]
    x = values(float(RANK))
    dist.broadcast(x, src=1)
    assert x.tolist() == [1.0]
    parts = [torch.empty(2).npu() for _ in range(size)]
    dist.all_gather(parts, values(RANK, RANK + 0.5))
    assert [part.tolist() for part in parts] == [[r, r + 0.5] for r in range(size)]
    part = torch.empty(1).npu()
    dist.reduce_scatter(part, [values(10.0 * r + RANK) for r in range(size)])
    assert part.tolist() == [10.0 * RANK * size + sum(range(size))]
    part = torch.empty(1).npu()
    dist.scatter(part, [values(7.0 + r) for r in range(size)] if RANK == 0 else None, src=0)
    assert part.tolist() == [7.0 + RANK]
    dist.barrier()


def all_to_all() -> None:
    """Parcels of equal and of different sizes."""
    size = dist.get_world_size()
    out = torch.empty(size).npu()
    dist.all_to_all_single(out, values(*(10.0 * RANK + r for r in range(size))))
    assert out.tolist() == [10.0 * r + RANK for r in range(size)]
    # rank i sends j + 1 values to rank j
    sent = torch.full((sum(range(1, size + 1)),), float(RANK)).npu()
    out = torch.empty(size * (RANK + 1)).npu()
    dist.all_to_all_single(out, sent, [RANK + 1] * size, [r + 1 for r in range(size)])
    assert out.tolist() == [float(r) for r in range(size) for _ in range(RANK + 1)]
    parts = [torch.empty(1).npu() for _ in range(size)]
    dist.all_to_all(parts, [values(100.0 * RANK + r) for r in range(size)])
    assert [part.item() for part in parts] == [100.0 * r + RANK for r in range(size)]


def messages() -> None:
    """Around the ring, one by one and as a batch."""
    size = dist.get_world_size()
    following, before = (RANK + 1) % size, (RANK - 1) % size
    x = torch.empty(1).npu()
    if RANK == 0:
        dist.send(values(1.0), following)
        dist.recv(x, before)
        assert x.item() == size
    else:
        dist.recv(x, before)
        dist.send(x + 1, following)
    for turn in range(3):
        out = torch.empty(4).npu()
        sent = torch.full((4,), RANK + 10.0 * turn).npu()
        operations = [dist.P2POp(dist.isend, sent, following), dist.P2POp(dist.irecv, out, before)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        assert out.tolist() == [before + 10.0 * turn] * 4


def data_parallel() -> None:
    """Gradients are the mean of those of all ranks; the profile of a step names the communication."""
    size = dist.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).npu())
    data = torch.full((8, 64), RANK + 1.0).npu()
    model(data).sum().backward()
    expected = torch.full((64, 64), 8 * (size + 1) / 2)
    assert torch.allclose(model.module.weight.grad.cpu(), expected)
    profiler = torch_npu.profiler
    levels = profiler._ExperimentalConfig(
        profiler_level=profiler.ProfilerLevel.Level1, aic_metrics=profiler.AiCMetrics.PipeUtilization
    )
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
        schedule=profiler.schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(f"rank_{RANK}"),
        experimental_config=levels,
    ) as profile:
        for _ in range(4):
            model.zero_grad()
            model(data).sum().backward()
            torch.npu.synchronize()
            profile.step()


def dying() -> None:
    """The last rank ends without a word; the others must be told, and soon."""
    x = values(1.0)
    dist.all_reduce(x)
    torch.npu.synchronize()
    if dist.get_world_size() - 1 == RANK:
        os._exit(3)
    begin = time.monotonic()
    try:
        dist.all_reduce(x)
        torch.npu.synchronize()
    except RuntimeError as error:
        Path(f"told_{RANK}").write_text(f"{time.monotonic() - begin:.1f} {error}")
    # What torch_npu does on its way out with a dead rank is not what is looked at.
    os._exit(0)


PARTS = {part.__name__: part for part in (collectives, all_to_all, messages, data_parallel, dying)}

if __name__ == "__main__":
    torch.npu.set_device(RANK)
    dist.init_process_group("hccl")
    for part in sys.argv[1:]:
        PARTS[part]()
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.write(f"rank {RANK} is through\n")
