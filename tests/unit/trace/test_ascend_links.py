"""The counters of links and accelerators, from tables in the documented shape to the numbers of the steps.

Tables: Huawei, CANN 9.1.0, "Description of .db Data Exported by msprof"; timeline: msprof's exporter of PCIe, in MiB a second.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfgate import trace
from perfgate.measuring.checklist.step import RecordedStep, RecordingContext, StepOutcome
from perfgate.measuring.checklist.steps import s02_utilization, s03_transfer, s16_communication
from perfgate.trace.analysis.summary import summarize
from perfgate.trace.model.recording import Recording, Timeline

from .ascend import written as text_file
from .test_ascend_database import STRINGS, written

_PORT = "deviceId INTEGER, timestampNs INTEGER, bandwidth INTEGER, funcId INTEGER"
_PORT_COLUMNS = "txByteRate, rxByteRate, rxErrors, rxDropped, txErrors, txDropped"
_PCIE_COLUMNS = "txPostAvg, txNonpostAvg, txCplAvg, rxPostAvg, rxNonpostAvg, rxCplAvg, txNonpostLatencyAvg"
_NETDEV_COLUMNS = "nicTxBandwidth, nicRxBandwidth, roceTxErrPkt, roceRxErrPkt, roceNewPktRty"


def export(path: Path, *statements: str) -> Path:
    """Two kernels, from 100 to 900 ns, and tables beside them."""
    return written(
        path,
        STRINGS,
        "INSERT INTO STRING_IDS VALUES (1,'mm1'),(2,'MatMul'),(3,'KERNEL_AICORE')",
        "CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, globalTaskId INTEGER, taskType INTEGER)",
        "INSERT INTO TASK VALUES (100,150,0,7,3),(800,900,0,8,3)",
        "CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER, opType INTEGER)",
        "INSERT INTO COMPUTE_TASK_INFO VALUES (1,7,2),(1,8,2)",
        *statements,
    )


def ports(table: str) -> tuple[str, str]:
    """Two ports, read at 200, 400 and 600 ns; the second lacks the last reading, and dropped two packets until the second."""
    rows = (
        "(0,200,200000,0, 10,20, 5,0,0,0), (0,200,200000,1, 1,2, 0,0,0,0), (1,200,200000,0, 99,99, 9,9,9,9),"
        "(0,400,200000,0, 30,40, 5,0,0,0), (0,400,200000,1, 3,4, 0,1,0,1), (0,600,200000,0, 50,60, 5,0,0,0)"
    )
    return f"CREATE TABLE {table} ({_PORT}, {_PORT_COLUMNS})", f"INSERT INTO {table} VALUES {rows}"


def read(path: Path) -> tuple[Recording, Timeline]:
    recording = trace.read(path)
    (timeline,) = recording.timelines
    return recording, timeline


def series(timeline: Timeline) -> dict[str, tuple[list[int], list[float], str]]:
    return {name: (one.time.tolist(), one.value.tolist(), one.unit) for name, one in timeline.readings.items()}


def judged(step: object, recording: Recording) -> StepOutcome:
    assert isinstance(step, RecordedStep)
    return step.judge_recording(RecordingContext(recording, summarize(recording.timelines), "model", {}))


def numbers(outcome: StepOutcome, metric: str) -> dict[tuple[str, ...], float | None]:
    labels = ("link", "direction", "of", "accelerator")
    return {
        tuple(value.labels[name] for name in labels if name in value.labels): value.value
        for value in outcome.values
        if value.metric == metric
    }


@pytest.mark.parametrize(("table", "link"), [("NIC", "NIC"), ("ROCE", "RoCE"), ("RoCE", "RoCE")])
def test_export__ports__all_of_a_device_together_and_what_they_lost(table: str, link: str, tmp_path: Path) -> None:
    recording, timeline = read(export(tmp_path / "msprof_1.db", *ports(table)))

    assert series(timeline) == {
        f"{link} sent": ([200, 400], [11.0, 33.0], "B/s"),
        f"{link} received": ([200, 400], [22.0, 44.0], "B/s"),
        f"{link} lost packets": ([200, 400], [5.0, 7.0], "packets"),
    }
    outcome = judged(s16_communication.STEP, recording)
    assert numbers(outcome, "communication.link_traffic") == {
        (link, "sent", "mean"): 33.0, (link, "sent", "highest"): 33.0,
        (link, "received", "mean"): 44.0, (link, "received", "highest"): 44.0,
    }  # fmt: skip
    assert numbers(outcome, "communication.lost_packets") == {(link,): 2.0}
    (lost,) = outcome.findings
    assert (lost.rule, lost.severity, lost.evidence["packets"], lost.evidence["link"]) == (
        "communication.lost_packets", "warning", 2, link,
    )  # fmt: skip


def test_export__counts_of_all_ports_together__in_place_of_the_ports_and_a_running_total(tmp_path: Path) -> None:
    table = (
        f"CREATE TABLE NETDEV_STATS (deviceId INTEGER, timestampNs INTEGER, {_NETDEV_COLUMNS})",
        "INSERT INTO NETDEV_STATS VALUES (0,200, 7,8, 0,0,0), (0,400, 9,10, 1,0,2), (0,600, 11,12, 0,1,0)",
    )
    recording, alone = read(export(tmp_path / "msprof_1.db", *table))
    _, beside = read(export(tmp_path / "msprof_2.db", *table, *ports("NIC")))

    assert series(alone) == {
        "NIC sent": ([200, 400, 600], [7.0, 9.0, 11.0], "B/s"),
        "NIC received": ([200, 400, 600], [8.0, 10.0, 12.0], "B/s"),
        "RoCE lost packets": ([200, 400, 600], [0.0, 3.0, 4.0], "packets"),
    }
    assert series(beside)["NIC sent"] == ([200, 400], [11.0, 33.0], "B/s")
    assert series(beside)["RoCE lost packets"] == series(alone)["RoCE lost packets"]
    assert numbers(judged(s16_communication.STEP, recording), "communication.lost_packets") == {("RoCE",): 4.0}


def test_export__between_devices_and_to_the_host__kinds_of_transfers_added_up(tmp_path: Path) -> None:
    recording, timeline = read(
        export(
            tmp_path / "msprof_1.db",
            "CREATE TABLE HCCS (deviceId INTEGER, timestampNs INTEGER, txThroughput NUMERIC, rxThroughput NUMERIC)",
            "INSERT INTO HCCS VALUES (0,200,1.5,2.5),(0,400,3,4)",
            f"CREATE TABLE PCIE (deviceId INTEGER, timestampNs INTEGER, {_PCIE_COLUMNS})",
            "INSERT INTO PCIE VALUES (0,200,1,2,3,4,5,6,700),(0,400,10,20,30,40,50,60,800),(0,600,1,2,3,4,5,NULL,NULL)",
        )
    )

    assert series(timeline) == {
        "HCCS sent": ([200, 400], [1.5, 3.0], "B/s"),
        "HCCS received": ([200, 400], [2.5, 4.0], "B/s"),
        "PCIe sent": ([200, 400, 600], [6.0, 60.0, 6.0], "B/s"),
        "PCIe received": ([200, 400], [15.0, 150.0], "B/s"),
        "PCIe read latency": ([200, 400], [700.0, 800.0], "ns"),
    }
    assert numbers(judged(s03_transfer.STEP, recording), "transfer.link_traffic") == {
        ("sent", "mean"): 33.0, ("sent", "highest"): 60.0, ("received", "mean"): 150.0, ("received", "highest"): 150.0,
    }  # fmt: skip
    assert numbers(judged(s16_communication.STEP, recording), "communication.link_traffic") == {
        ("HCCS", "sent", "mean"): 3.0, ("HCCS", "sent", "highest"): 3.0,
        ("HCCS", "received", "mean"): 4.0, ("HCCS", "received", "highest"): 4.0,
    }  # fmt: skip


def test_export__accelerators__levels_on_the_timeline_and_how_often_each_moved_data(tmp_path: Path) -> None:
    recording, timeline = read(
        export(
            tmp_path / "msprof_1.db",
            "CREATE TABLE ACC_PMU (accId INTEGER, readBwLevel INTEGER, writeBwLevel INTEGER, readOstLevel INTEGER,"
            " writeOstLevel INTEGER, timestampNs NUMERIC, deviceId INTEGER)",
            "INSERT INTO ACC_PMU VALUES (1,0,0,0,0,50,0),(1,0,0,0,0,200,0),(1,2,0,1,0,400,0),(1,0,3,0,1,600,0)",
            "INSERT INTO ACC_PMU VALUES (5,0,0,0,0,200,0)",
        )
    )

    found = series(timeline)
    assert found["Accelerator 1/readBwLevel"] == ([50, 200, 400, 600], [0.0, 0.0, 2.0, 0.0], "")
    assert found["Accelerator 1/writeOstLevel"] == ([50, 200, 400, 600], [0.0, 0.0, 0.0, 1.0], "")
    assert found["Accelerator 5/writeBwLevel"] == ([200], [0.0], "")
    assert numbers(judged(s02_utilization.STEP, recording), "utilization.accelerator") == {
        ("1",): pytest.approx(2 / 3), ("5",): 0.0,
    }  # fmt: skip


def test_export__links_read_once__no_mean_and_why(tmp_path: Path) -> None:
    recording, _ = read(
        export(
            tmp_path / "msprof_1.db",
            "CREATE TABLE HCCS (deviceId INTEGER, timestampNs INTEGER, txThroughput NUMERIC, rxThroughput NUMERIC)",
            "INSERT INTO HCCS VALUES (0,200,1.5,NULL)",
        )
    )
    outcome = judged(s16_communication.STEP, recording)

    assert numbers(outcome, "communication.link_traffic") == {("HCCS", "sent"): None}
    assert outcome.findings == []


def counter(name: str, pid: int, ts: int, **arguments: float) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": pid, "tid": 0, "ts": str(ts), "args": arguments}


def test_view__pcie_and_ports_of_two_kinds__bytes_to_the_host_and_no_port_hides_another(tmp_path: Path) -> None:
    events = [
        *(
            {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
            for pid, name in ((4, "Ascend Hardware"), (5, "PCIe"), (6, "NIC"), (7, "RoCE"))
        ),
        {"ph": "X", "name": "mm1", "pid": 4, "tid": 1, "ts": "0.1", "dur": 1, "args": {"Task Type": "AI_CORE"}},
        *(counter(f"PCIe_{kind}", 5, ts, Tx=2.0, Rx=0.5) for kind in ("post", "nonpost", "cpl") for ts in (1, 2)),
        counter("PCIe_nonpost_latency", 5, 1, Tx=0.7, Rx=0),
        *(counter("Port 0/Rx", pid, 1, **{"Rx Packets": pid, "Rx Error Rate": 0.0}) for pid in (6, 7)),
    ]
    _, timeline = read(text_file(tmp_path, "trace_view.json", json.dumps(events)))

    found = series(timeline)
    assert found["PCIe sent"] == ([1000, 2000], [6.0 * (1 << 20)] * 2, "B/s")
    assert found["PCIe received"] == ([1000, 2000], [1.5 * (1 << 20)] * 2, "B/s")
    assert found["PCIe_post Tx"] == ([1000, 2000], [2.0 * (1 << 20)] * 2, "B/s")
    assert (found["NIC Port 0/Rx Rx Packets"][1], found["RoCE Port 0/Rx Rx Packets"][1]) == ([6.0], [7.0])
