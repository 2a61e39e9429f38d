"""Two groups of ranks on the same cards: ports of their own, in the environment and in the rank table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.ranks.hccl import port_settings, rank_table_of_group
from perfgate.judging.report.text.messages import word

# As the rank tables of Atlas A2 and, with ports of the host, of Atlas A3 look (hiascend.com, "Rank Table Configuration").
TABLE = {
    "status": "completed",
    "version": "1.0",
    "server_count": "1",
    "server_list": [
        {
            "server_id": "node_0",
            "device": [
                {"device_id": "0", "device_ip": "192.168.1.8", "device_port": "16667", "rank_id": "0"},
                {"device_id": "1", "device_ip": "192.168.1.9", "host_port": "16665", "rank_id": "1"},
            ],
        }
    ],
}


def test_port_settings__two_groups__no_port_in_common_and_ranges_of_the_user_stay() -> None:
    first, second = (port_settings({}, group) for group in (1, 2))
    for name in ("HCCL_HOST_SOCKET_PORT_RANGE", "HCCL_NPU_SOCKET_PORT_RANGE"):
        spans = [[int(port) for port in settings[name].split("-")] for settings in (first, second)]
        assert spans[0][0] < spans[0][1] < spans[1][0] < spans[1][1] < 65536
        assert name not in port_settings({name: "61000-61050"}, 1)
    assert port_settings({"HCCL_IF_BASE_PORT": "50000"}, 1)["HCCL_IF_BASE_PORT"] == "50064"


def test_rank_table__two_groups__the_same_cards_on_other_ports(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text(json.dumps(TABLE))
    ports = []
    for group in (1, 2):
        folder = tmp_path / str(group)
        folder.mkdir()
        told = rank_table_of_group({"RANK_TABLE_FILE": str(table)}, group, folder)
        written = json.loads(Path(told["RANK_TABLE_FILE"]).read_text())
        devices = written["server_list"][0]["device"]
        ports.append({device[name] for device in devices for name in device if name.endswith("port")})
        for device, original in zip(devices, TABLE["server_list"][0]["device"]):  # type: ignore[index]
            assert {k: v for k, v in device.items() if not k.endswith("port")} == {
                k: v for k, v in original.items() if not k.endswith("port")
            }
    assert ports == [{"16731", "16730", "16729"}, {"16795", "16794", "16793"}]
    assert json.loads(table.read_text()) == TABLE, "the user's own is not touched"
    assert rank_table_of_group({}, 1, tmp_path) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"server_list": [{"device": [{"device_port": "x"}]}]}', None])
def test_rank_table__damaged__one_sentence_with_its_name(tmp_path: Path, text: str | None) -> None:
    table = tmp_path / "table.json"
    if text is not None:
        table.write_text(text)
    with pytest.raises(SideError) as caught:
        rank_table_of_group({"RANK_TABLE_FILE": str(table)}, 1, tmp_path)
    assert word(caught.value.detail.message).startswith(
        f"the rank table {table}, named by RANK_TABLE_FILE, cannot be read"
    )
