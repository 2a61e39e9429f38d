"""Faults that a test plants in a process, or the code of one side of a comparison in its own."""

from __future__ import annotations

from tests.softnpu.checkout import OnNpu

TIMED = """
import os, time
def seconds():
    torch.npu.synchronize()
    begin = time.perf_counter()
    x.relu()
    torch.npu.synchronize()
    return time.perf_counter() - begin
"""


def test_delay__set_by_the_program_at_any_time__slows_what_follows(on_npu: OnNpu) -> None:
    result = on_npu(
        TIMED
        + """
os.environ["SOFTNPU_DELAY_US"] = "aclnnRelu=30000"   # before the device is first used
x = torch.ones(4).npu()
first = seconds()
del os.environ["SOFTNPU_DELAY_US"]
between = seconds()
os.environ["SOFTNPU_DELAY_US"] = "*=30000"           # after it
last = seconds()
assert first >= 0.03 and last >= 0.03, (first, last)
assert between < 0.03, between
"""
    )
    assert result.returncode == 0, result.stderr


def test_failure__planted__poisons_the_process(on_npu: OnNpu) -> None:
    result = on_npu(
        """
x = torch.ones(4).npu()
x.relu()
torch.npu.synchronize()
import os
os.environ["SOFTNPU_FAIL"] = "aclnnTanh"
x.tanh()
told = 0
for _ in range(2):
    try:
        torch.npu.synchronize()
    except RuntimeError as error:
        told += "507015" in str(error)
    os.environ.pop("SOFTNPU_FAIL", None)
    try:
        x.relu().cpu()
    except RuntimeError:
        told += 1
assert told == 4, told
os._exit(0)
"""
    )
    assert result.returncode == 0, result.stderr


def test_failure__planted_in_another_operator__harmless(on_npu: OnNpu) -> None:
    result = on_npu(
        "x = torch.ones(4).npu(); assert (x.relu().cpu() == 1).all()",
        SOFTNPU_FAIL="aclnnTanh",
    )
    assert result.returncode == 0, result.stderr
