"""`perfgate config`: what it prints is the configuration itself, and says where each value comes from."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from perfgate.cli.main import cli
from perfgate.config import ConfigFile, parse_config
from perfgate.errors import ConfigError
from perfgate.flows.config import Setting, list_settings, statement_lines

TEXT = """# What is measured.
device = "npu"
workload = "w.py:encoder"

[gate]
looks = [
  8,
  16,  # budget = 3
]
budget = 30.0

[measure]
setup = '''
pip install -e .
[store]
path = "no setting"
'''
[limits]
"transfer.share.*" = 0.10
"ops.kernel_time.warning" = { value = 0.05, gating = true }

[limits."memory.growth.warning"]
value = 3.0

[gate.tolerance]
"latency.p50" = 0.03
"latency.*" = 0.05
"""


def settings(folder: Path, text: str = TEXT, **environ: str) -> dict[str, Setting]:
    (folder / "perfgate.toml").write_text(text)
    return {
        ".".join([setting.table, setting.name]).strip("."): setting
        for setting in list_settings(folder, {"HOME": "/home/me", **environ})
    }


def test_statement_lines__values_of_several_lines__the_line_each_begins_on() -> None:
    lines = statement_lines(TEXT)
    assert lines["device",] == 2
    assert lines["gate", "looks"] == 6
    assert lines["gate", "budget"] == 10
    assert lines["measure", "setup"] == 13
    assert ("store",) not in lines
    assert lines["limits", "ops.kernel_time.warning"] == 20
    assert lines["limits", "memory.growth.warning"] == 22
    assert lines["gate", "tolerance", "latency.*"] == 27


def test_list_settings__file_and_defaults__value_default_and_origin_of_each(tmp_path: Path) -> None:
    listed = settings(tmp_path)
    assert (listed["device"].value, listed["device"].default) == ("npu", "cpu")
    assert (listed["device"].origin, listed["device"].line) == ("perfgate.toml", 2)
    aa_pairs = listed["gate.aa_pairs"]
    assert (aa_pairs.value, aa_pairs.default, aa_pairs.origin, aa_pairs.line) == (7, 7, "default", None)
    assert (listed["project"].value, listed["project"].origin) == (tmp_path.name, "default")
    assert listed["store.path"].value == "/home/me/.local/share/perfgate/store.db"
    assert listed["limits.ops.kernel_time.warning"].value == {"value": 0.05, "gating": True}
    assert listed["gate.tolerance.latency.p50"].default == 0.02
    assert listed["gate.tolerance.latency.*"].default is msgspec.UNSET


def test_list_settings__every_field_of_the_file__is_there_once(tmp_path: Path) -> None:
    listed = settings(tmp_path, "")
    names = []
    for field in msgspec.structs.fields(ConfigFile):
        inner = field.default.__struct_fields__ if isinstance(field.default, msgspec.Struct) else ()
        names += [f"{field.name}.{name}" for name in inner] or [field.name]
    assert sorted(name for name in listed if not name.startswith("environment.")) == sorted(names)
    assert {setting.origin for setting in listed.values()} == {"default"}


def test_list_settings__variables__overrule_the_file_and_hide_a_password(tmp_path: Path) -> None:
    store = "postgresql://me:secret@host/runs"
    listed = settings(tmp_path, PERFGATE_DEVICE="cuda:1", PERFGATE_STORE=store, PERFGATE_LOCK="/shared/lock")
    device = listed["device"]
    assert (device.value, device.default, device.origin, device.line) == ("cuda:1", "cpu", "PERFGATE_DEVICE", None)
    assert (listed["store.path"].value, listed["store.path"].origin) == ("postgresql://***@host/runs", "PERFGATE_STORE")
    lock = listed["environment.PERFGATE_LOCK"]
    assert (lock.value, lock.origin) == ("/shared/lock", "PERFGATE_LOCK")
    assert lock.default.endswith("/perfgate.lock")


def test_list_settings__password_in_the_file__hidden(tmp_path: Path) -> None:
    places = '[store]\npath = "postgresql://me:secret@host/runs"\n[artifacts]\npath = "sftp://me:secret@host/kept"\n'
    (tmp_path / "perfgate.toml").write_text(TEXT + places)
    listed = {f"{one.table}.{one.name}": one.value for one in list_settings(tmp_path, {})}
    assert listed["store.path"] == "postgresql://***@host/runs"
    assert listed["artifacts.path"] == "sftp://***@host/kept"


def test_config__as_toml__is_the_same_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERFGATE_DEVICE", "PERFGATE_STORE", "PERFGATE_LANG"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "perfgate.toml"
    path.write_text(TEXT + '[store]\npath = "runs.db"\n')
    done = CliRunner().invoke(cli, ["config", "-C", str(tmp_path)])
    assert done.exit_code == 0
    assert parse_config(done.output, path) == parse_config(path.read_text(), path)
    lines = done.output.splitlines()
    assert 'device = "npu"                        # perfgate.toml:2, default "cpu"' in lines
    assert "aa_pairs = 7                          # default" in lines
    assert "# quads: unset (default)" in lines
    assert max(map(len, lines)) <= 80


def test_config__as_json__a_list_with_the_same_settings(tmp_path: Path) -> None:
    (tmp_path / "perfgate.toml").write_text(TEXT)
    listed = json.loads(CliRunner().invoke(cli, ["config", "--format", "json", "-C", str(tmp_path)]).output)
    assert {
        "table": "gate",
        "name": "budget",
        "value": 30.0,
        "default": 60.0,
        "origin": "perfgate.toml",
        "line": 10,
    } in listed


@pytest.mark.parametrize(
    ("text", "environ", "message"),
    [
        ("[gate]\nbudgett = 1", {}, "unknown key 'budgett'; did you mean 'budget'"),
        ("[gate", {}, "is not valid TOML"),
        ("[gate]\nalpha = 2", {}, r"\[gate\] alpha must be"),
        ("", {"PERFGATE_LANG": "fr"}, "PERFGATE_LANG is 'fr'; the languages are"),
    ],
)
def test_list_settings__bad_configuration__its_usual_message(
    tmp_path: Path, text: str, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(tmp_path, text, **environ)
    assert ConfigError.exit_code == 2
