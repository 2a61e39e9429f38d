"""communication.json and communication_matrix.json, which torch_npu splits into steps."""

from __future__ import annotations

import json

from recording import Recording, Task

MEGABYTE = 1e6
LARGE_PACKET = 16e6  # bytes; below it SDMA links lose bandwidth
LINKS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
USED_LINK = "HCCS"


def write(recording: Recording) -> None:
    """Write both files into analyze/; nothing where nothing was communicated or only times were collected."""
    tasks = [task for task in recording.tasks if task.link]
    if not tasks or not recording.has_operators:
        return
    folder = recording.folder / "analyze"
    folder.mkdir(exist_ok=True)
    operations = {f"{task.name}@{task.link.group}": task for task in tasks}
    times = {name: {**time_info(recording, task), **bandwidth_info(task)} for name, task in operations.items()}
    (folder / "communication.json").write_text(json.dumps(times))
    links = {name: matrix(task) for name, task in operations.items()}
    (folder / "communication_matrix.json").write_text(json.dumps(links))


def transit_ms(task: Task) -> float:
    """Return the time that was not spent waiting for other ranks."""
    return max(0, task.end - task.begin - task.link.waited_ns) / 1e6


def time_info(recording: Recording, task: Task) -> dict:
    """Return how long the operation took and what of it was waiting; both are measured."""
    elapse, transit = (task.end - task.begin) / 1e6, transit_ms(task)
    wait = elapse - transit
    ratio = round(wait / elapse, 4)
    return {
        "Communication Time Info": {
            "Start Timestamp(us)": float(recording.wall_us(task.begin)),
            "Elapse Time(ms)": elapse,
            "Transit Time(ms)": transit,
            "Wait Time(ms)": wait,
            "Synchronization Time(ms)": wait,
            "Idle Time(ms)": 0.0,
            "Wait Time Ratio": ratio,
            "Synchronization Time Ratio": ratio,
        }
    }


def bandwidth_info(task: Task) -> dict:
    """Return what went over each kind of link; everything goes over one here."""
    links = {link: _traffic(0, 0.0) for link in LINKS}
    links[USED_LINK] = _traffic(task.link.bytes, transit_ms(task))
    return {"Communication Bandwidth Info": links}


def _traffic(size: int, ms: float) -> dict:
    if not size:
        size_distribution: dict = {}
    else:
        size_distribution = {str(size / MEGABYTE): [1, ms]}
    return {
        "Transit Size(MB)": size / MEGABYTE,
        "Transit Time(ms)": ms,
        "Bandwidth(GB/s)": round(size / MEGABYTE / ms, 4) if ms else 0,
        "Large Packet Ratio": float(size >= LARGE_PACKET),
        "Size Distribution": size_distribution,
    }


def matrix(task: Task) -> dict:
    """Return the traffic from this rank to itself and to each of its peers."""
    peers = range(task.link.ranks) if task.link.peer < 0 else (task.link.peer,)
    links = {}
    for peer in peers:
        traffic = _traffic(task.link.bytes, transit_ms(task))
        here, there = (peer, task.link.rank) if task.api == "hcom_receive_" else (task.link.rank, peer)
        links[f"{here}-{there}"] = {
            "Transport Type": "LOCAL" if peer == task.link.rank else USED_LINK,
            **{key: traffic[key] for key in ("Transit Size(MB)", "Transit Time(ms)", "Bandwidth(GB/s)")},
        }
    return links
