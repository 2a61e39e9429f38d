from pathlib import Path

import pytest

from perfgate.config import Config, parse_config
from perfgate.errors import StoreError
from perfgate.flows.shared.artifacts import artifacts_location
from perfgate.flows.shared.store import open_project_store
from perfgate.judging.store.runs import prune_runs, stored_runs
from perfgate.judging.store.store import store_location


def config(path: str = "") -> Config:
    return parse_config(f'workload = "w.py:w"\n[store]\npath = "{path}"', Path("/project/perfgate.toml"))


def test_store_location__nothing_said__the_users_data_folder() -> None:
    assert store_location(config(), {"HOME": "/home/u"}) == "/home/u/.local/share/perfgate/store.db"
    assert store_location(config(), {"HOME": "/home/u", "XDG_DATA_HOME": "/data"}) == "/data/perfgate/store.db"
    assert store_location(config(), {"HOME": "/h", "XDG_DATA_HOME": "relative"}) == "/h/.local/share/perfgate/store.db"


def test_store_location__path_in_the_file__relative_to_the_project() -> None:
    assert store_location(config("runs.db"), {"HOME": "/h"}) == "/project/runs.db"
    assert store_location(config("/var/runs.db"), {"HOME": "/h"}) == "/var/runs.db"
    assert store_location(config("sqlite:////var/runs.db"), {}) == "sqlite:////var/runs.db"


def test_store_location__url_of_a_file__relative_to_the_project_too() -> None:
    assert store_location(config("sqlite:///runs.db"), {}) == "sqlite:////project/runs.db"


def test_store_location__home_folder__not_below_the_project() -> None:
    assert store_location(config("~/runs.db"), {}) == "~/runs.db"
    assert store_location(config("sqlite:///~/runs.db"), {}) == "sqlite:///~/runs.db"


def test_artifacts_location__home_folder__not_below_the_project() -> None:
    kept = parse_config('workload = "w.py:w"\n[artifacts]\npath = "~/kept"', Path("/project/perfgate.toml"))
    assert artifacts_location(kept, {}) == "~/kept"


def test_store_location__variable__before_the_file() -> None:
    assert store_location(config("runs.db"), {"PERFGATE_STORE": "/else.db"}) == "/else.db"
    assert store_location(config("runs.db"), {"PERFGATE_STORE": "", "HOME": "/h"}) == "/project/runs.db"


def test_store_location__no_home__says_what_to_set() -> None:
    with pytest.raises(StoreError, match="neither HOME nor XDG_DATA_HOME is set; set PERFGATE_STORE"):
        store_location(config(), {})


def test_open_project_store__url_of_another_database__refused_with_what_works() -> None:
    with pytest.raises(
        StoreError,
        match=r"no store can be kept at 'mysql://h/d'; give a file path, .* or https://HOST of a `perfgate serve`",
    ):
        open_project_store(config(), {"PERFGATE_STORE": "mysql://h/d"})


def test_open_project_store__not_used__nothing_is_created(tmp_path: Path) -> None:
    store = open_project_store(config(), {"PERFGATE_STORE": str(tmp_path / "a" / "store.db")})
    assert stored_runs(store, "shop") == []
    assert list(tmp_path.iterdir()) == []


def test_open_project_store__url_of_a_file__the_same_as_its_path(tmp_path: Path) -> None:
    store = open_project_store(config(), {"PERFGATE_STORE": f"sqlite:///{tmp_path}/store.db"})
    prune_runs(store, "shop", keep=1)
    assert stored_runs(store, "shop") == []


def test_open_project_store__home_of_nobody__refused() -> None:
    with pytest.raises(StoreError, match="give a path without ~"):
        open_project_store(config(), {"PERFGATE_STORE": "~no-such-user-here/store.db"})


@pytest.mark.parametrize(
    "location",
    [
        "postgresql://perfgate:hunter2@localhost:1/perf",
        "postgresql://perfgate:hunter/2@localhost:1/perf",
        "postgresql://localhost:1/perf?user=perfgate&password=hunter2",
        "mysql://hunter2@localhost:1/perf",
        "branch://perfgate:hunter2@host/name",
        "branch://perf..gate?token=hunter2",
        "branch://perfgate?password=hunter2",
    ],
)
def test_open_project_store__place_with_a_password__refused_without_saying_it(location: str) -> None:
    with pytest.raises(StoreError) as refused:
        stored_runs(open_project_store(config(), {"PERFGATE_STORE": location}), "shop")
    assert "hunter" not in str(refused.value)
    assert "***" in str(refused.value)
