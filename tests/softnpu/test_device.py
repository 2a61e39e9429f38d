"""The software NPU behind the real torch_npu: memory, streams, events, graphs and errors."""

from __future__ import annotations

from tests.softnpu.checkout import OnNpu


def passes(result) -> str:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_device__copy_and_add__value_of_the_cpu(on_npu: OnNpu) -> None:
    passes(
        on_npu("""
x = torch.randn(2, 3)
y = x.npu() + 1
assert y.device.type == "npu"
assert torch.equal(y.cpu(), x + 1)
assert torch.npu.get_device_name(0) == "Ascend910B3"
""")
    )


def test_device__launches__are_asynchronous(on_npu: OnNpu) -> None:
    passes(
        on_npu(
            """
begin, end = (torch.npu.Event(enable_timing=True) for _ in range(2))
x = torch.ones(8, 8).npu()
torch.npu.synchronize()
begin.record()
x.relu()
end.record()
assert not end.query()
end.synchronize()
assert end.query()
assert 20 <= begin.elapsed_time(end) < 200, begin.elapsed_time(end)
""",
            SOFTNPU_DELAY_US="aclnnRelu=20000",
        )
    )


def test_device__memory__is_counted_and_runs_out(on_npu: OnNpu) -> None:
    passes(
        on_npu("""
before = torch.npu.memory_allocated()
x = torch.empty(1 << 20, device="npu")
assert torch.npu.memory_allocated() - before >= 4 << 20
unused, total = torch.npu.mem_get_info()
assert total == 8 << 30
assert unused < total
try:
    torch.empty(1 << 34, device="npu")
except torch.OutOfMemoryError as error:
    assert "8.00 GiB" in str(error)
else:
    raise AssertionError("64 GiB were given out of 8")
""")
    )


def test_device__side_stream__is_waited_for(on_npu: OnNpu) -> None:
    passes(
        on_npu("""
side, x = torch.npu.Stream(), torch.ones(64, 64).npu()
with torch.npu.stream(side):
    y = x @ x
torch.npu.current_stream().wait_stream(side)
assert (y.cpu() == 64).all()
""")
    )


def test_device__captured_graph__replays_on_new_input(on_npu: OnNpu) -> None:
    passes(
        on_npu("""
x = torch.ones(4).npu()
torch.npu.synchronize()
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    y = x + 1
x.fill_(5)
graph.replay()
torch.npu.synchronize()
assert y.cpu().tolist() == [6.0] * 4
""")
    )


def test_device__unknown_operator__is_named(on_npu: OnNpu) -> None:
    result = on_npu("torch.linalg.qr(torch.ones(4, 4).npu()); torch.npu.synchronize()")
    assert result.returncode != 0
    assert "Qr" in result.stderr or "qr" in result.stderr


def test_device__synchronous__task_is_done_when_launched(on_npu: OnNpu) -> None:
    passes(
        on_npu(
            """
x = torch.ones(8, 8).npu()
event = torch.npu.Event()
y = (x @ x).relu()
event.record()
assert event.query()
assert (y.cpu() == 8).all()
""",
            SOFTNPU_SYNCHRONOUS="1",
            SOFTNPU_DELAY_US="aclnnRelu=20000",
            TASK_QUEUE_ENABLE="0",
        )
    )
