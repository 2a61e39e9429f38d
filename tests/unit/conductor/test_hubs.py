from __future__ import annotations

from pathlib import Path

from perfgate.conductor.workers.rooms import show_hub_caches

LARGE = b"weights" * 20_000


def test_show_hub_caches__a_snapshot_of_huggingface__read_here_and_never_written_there(tmp_path: Path) -> None:
    model = tmp_path / "me" / ".cache" / "huggingface" / "hub" / "models--team--encoder"
    (model / "blobs").mkdir(parents=True)
    (model / "blobs" / "abc").write_bytes(LARGE)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("1234")
    (model / "snapshots" / "1234").mkdir(parents=True)
    (model / "snapshots" / "1234" / "model.bin").symlink_to("../../blobs/abc")
    (tmp_path / "me" / ".cache" / "huggingface" / "token").write_text("secret")
    home = tmp_path / "home"

    show_hub_caches({"HOME": str(tmp_path / "me")}, home)

    seen = home / ".cache" / "huggingface" / "hub" / "models--team--encoder"
    weights = seen / "snapshots" / "1234" / "model.bin"
    assert weights.read_bytes() == LARGE
    assert weights.readlink() == Path("../../blobs/abc")
    (seen / "refs" / "main").write_text("5678")
    (seen / "blobs" / "new").write_bytes(b"downloaded")
    assert (model / "refs" / "main").read_text() == "1234"
    assert [path.name for path in (model / "blobs").iterdir()] == ["abc"]
    assert not (home / ".cache" / "huggingface" / "token").exists()


def test_show_hub_caches__links_to_another_disk_and_a_cache_of_its_own__followed(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "checkpoints").mkdir(parents=True)
    (disk / "checkpoints" / "resnet.pth").write_bytes(LARGE)
    hub = tmp_path / "caches" / "torch" / "hub"
    hub.mkdir(parents=True)
    (hub / "checkpoints").symlink_to("../../../disk/checkpoints")
    show_hub_caches({"HOME": "/nowhere", "XDG_CACHE_HOME": str(tmp_path / "caches")}, tmp_path / "home")
    assert (tmp_path / "home/.cache/torch/hub/checkpoints/resnet.pth").read_bytes() == LARGE


def test_show_hub_caches__no_home__nothing(tmp_path: Path) -> None:
    show_hub_caches({}, tmp_path)
    assert list(tmp_path.iterdir()) == []
