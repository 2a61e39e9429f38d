from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from perfgate.errors import ConfigError, MeasuringError
from perfgate.measuring.devices.backends.cpu import cpu_model, held_by_call, last_cache_bytes
from perfgate.measuring.devices.device import MemoryCount
from perfgate.measuring.devices.registry import device_kinds, open_device


def test_held_by_call__allocations_and_frees__peak_on_top_of_the_start() -> None:
    # 100 and 50 are held at once; freeing what was there before the call (9) changes nothing.
    events = [(1, 100), (9, -4096), (2, 50), (1, -100), (1, 30), (2, -50)]

    assert held_by_call([events]) == [MemoryCount(allocations=3, peak_bytes=150, kept_bytes=30)]


def test_held_by_call__a_block_of_the_call_before_is_freed__kept_falls_and_the_peak_does_not() -> None:
    counts = held_by_call([[(1, 100)], [(2, 60), (1, -100)], [(3, 60), (2, -60)]])

    assert [count.peak_bytes for count in counts] == [100, 60, 60]
    assert [count.kept_bytes for count in counts] == [100, -40, 0]


def test_held_by_call__nothing__zero() -> None:
    assert held_by_call([[], []]) == [MemoryCount(0, 0), MemoryCount(0, 0)]


def test_count_memory__known_tensors__counted_exactly() -> None:
    x = torch.ones(256)

    def call():
        doubled = x + x  # 1024 B
        wide = doubled.to(torch.float64)  # 2048 B
        del doubled
        return wide + wide  # 2048 B

    assert open_device("cpu").count_memory([call]) == [MemoryCount(allocations=3, peak_bytes=4096)]


def test_count_memory__block_of_before_is_freed__same_with_and_without_an_earlier_profile() -> None:
    device = open_device("cpu")
    state = {"kept": torch.ones(1000)}

    def call():
        state["kept"] = torch.ones(1000)

    for _ in range(3):
        counts = device.count_memory([call, call])
        # The first call replaces a block the profiler has never seen.
        assert counts == [MemoryCount(1, 4000, 4000), MemoryCount(1, 4000, 0)]


def test_count_memory__garbage_in_a_cycle__not_kept() -> None:
    def call():
        ring = [torch.ones(1000)]
        ring.append(ring)

    assert open_device("cpu").count_memory([call, call])[1] == MemoryCount(1, 4000, 0)


def test_cpu_model__x86__its_name() -> None:
    assert cpu_model("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some CPU @ 2.50GHz\n") == "Some CPU @ 2.50GHz"


def test_cpu_model__aarch64__implementer_and_part() -> None:
    # As Linux prints on a Kunpeng 920 (arch/arm64/kernel/cpuinfo.c: no model name).
    text = "processor\t: 0\nCPU implementer\t: 0x48\nCPU architecture: 8\nCPU part\t: 0xd01\n"

    assert cpu_model(text) == "implementer 0x48 part 0xd01"


def test_cpu_model__nothing_readable__something() -> None:
    assert cpu_model("")


def test_is_out_of_memory__torch_cannot_allocate__true() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)

    assert open_device("cpu").is_out_of_memory(caught.value)
    assert open_device("cpu").is_out_of_memory(MemoryError())


def test_record_trace__folder_is_missing__says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(MeasuringError, match="trace"):
        open_device("cpu").record_trace(lambda: torch.ones(2), calls=1, folder=tmp_path / "absent", name="trace")


def test_open_device__unknown_kind__names_those_known() -> None:
    with pytest.raises(ConfigError, match=r"device 'tpu' is not known; known kinds: .*cpu"):
        open_device("tpu")


@pytest.mark.parametrize("kind", ["", "CPU", "cpu:", "cpu:x", "cpu;rm", "device"])
def test_open_device__no_kind__refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="is not known"):
        open_device(kind)


def test_open_device__index_that_is_not_there__says_so() -> None:
    with pytest.raises(MeasuringError, match="device 'cpu:1' cannot be opened: device cpu:1 does not exist"):
        open_device("cpu:1")


def test_device_kinds__folder__holds_the_cpu() -> None:
    assert "cpu" in device_kinds()


def test_open_device__cpu__imports_no_torch() -> None:
    code = (
        "import sys; from perfgate.measuring.devices.registry import open_device; "
        "open_device('cpu'); print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=600)

    assert found.stdout.strip() == "False"


def cache_folder(path, *caches):
    for number, (level, kind, size) in enumerate(caches):
        index = path / f"index{number}"
        index.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (index / name).write_text(f"{text}\n")
    return path


def test_last_cache_bytes__three_levels__the_last(tmp_path: Path) -> None:
    # As /sys of a Xeon has them.
    folder = cache_folder(
        tmp_path,
        ("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2048K"), ("3", "Unified", "491520K"),
    )  # fmt: skip

    assert last_cache_bytes(folder) == 503_316_480


@pytest.mark.parametrize("caches", [(), (("1", "Instruction", "64K"),), (("3", "Unified", ""),)])
def test_last_cache_bytes__nothing_told__none(tmp_path: Path, caches: tuple[tuple[str, str, str], ...]) -> None:
    assert last_cache_bytes(cache_folder(tmp_path, *caches)) is None
