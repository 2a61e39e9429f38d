"""The contract of the artifact store, over any place.

A test module of a place imports all of this and defines ``location``, a fixture with the URL of an empty place.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from perfgate.document.kept import ArtifactSet, page_file
from perfgate.errors import StoreError
from perfgate.judging.store.artifacts import ArtifactStore
from perfgate.judging.store.layout import project_key
from perfgate.judging.store.objects import ObjectPlace
from tests.fakes.artifacts import FLAME, artifact_set, trace_of

TRACE = "trace-encoder-short.json.gz"
ADDRESS = "https://files.example.com/perf"


@pytest.fixture
def place(location: str) -> ObjectPlace:
    return ObjectPlace(location, {})


@pytest.fixture
def artifacts(place: ObjectPlace) -> ArtifactStore:
    return ArtifactStore(place, ADDRESS)


class Sent:
    """The files that were sent, in their order; ``stop_at`` ends the upload before that one, as a signal would."""

    def __init__(self, stop_at: str = "") -> None:
        self.paths: list[str] = []
        self._stop_at = stop_at

    def __call__(self, path: str, number: int, files: int) -> None:
        if path == self._stop_at:
            raise KeyboardInterrupt
        self.paths.append(path)


def content(store: ArtifactStore, kept: ArtifactSet, path: str) -> bytes:
    file = kept.file(path)
    assert file is not None
    return b"".join(store.content(kept, path, 0, file.bytes))


def test_artifacts__nothing_kept__empty(artifacts: ArtifactStore) -> None:
    assert artifacts.sets("shop") == []
    assert artifacts.find("shop", "0" * 64) is None
    assert artifacts.unfinished("shop", datetime.now(timezone.utc)) == []
    artifacts.remove("shop", "0" * 64)


def test_keep__run__listed_and_read_byte_by_byte_and_in_ranges(artifacts: ArtifactStore, tmp_path: Path) -> None:
    made = artifact_set(tmp_path)
    done = artifacts.keep(made, tmp_path, Sent())
    assert (done.sent, done.there, done.sent_bytes) == (2, 0, len(trace_of("s1")) + len(FLAME))
    assert artifacts.sets("shop") == [made]
    (found,) = artifacts.sets("shop")
    assert artifacts.find("shop", made.id) == artifacts.at(project_key("shop"), made.id) == found
    assert (content(artifacts, found, TRACE), content(artifacts, found, "flame.html")) == (trace_of("s1"), FLAME)
    assert b"".join(artifacts.content(found, "flame.html", 3, 9)) == FLAME[3:9]
    # A log may hold what the model prints.
    assert found.file("logs/worker.log") is None


def test_keep__file_larger_than_a_chunk__whole(
    artifacts: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfgate.judging.store.objects._CHUNK", 7)
    made = artifact_set(tmp_path)
    artifacts.keep(made, tmp_path, Sent())
    pieces = list(artifacts.content(made, "flame.html", 0, len(FLAME)))
    assert (b"".join(pieces), max(map(len, pieces))) == (FLAME, 7)


def test_keep__again__nothing_is_sent_and_the_first_time_counts(artifacts: ArtifactStore, tmp_path: Path) -> None:
    made = artifact_set(tmp_path)
    artifacts.keep(made, tmp_path, Sent())
    sent = Sent()
    again = artifacts.keep(msgspec.structs.replace(made, kept_at="2026-04-01T00:00:00+00:00"), tmp_path, sent)
    assert (sent.paths, again.there, again.artifacts) == ([], 2, made)
    assert artifacts.sets("shop") == [made]


def test_keep__broken_off__listed_once_the_rest_is_sent(artifacts: ArtifactStore, tmp_path: Path) -> None:
    made = artifact_set(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        artifacts.keep(made, tmp_path, Sent(stop_at="flame.html"))
    assert artifacts.sets("shop") == []
    later = datetime.now(timezone.utc) + timedelta(minutes=1)
    assert artifacts.unfinished("shop", later) == [made.id]
    assert artifacts.unfinished("shop", later - timedelta(days=1)) == []
    sent = Sent()
    assert artifacts.keep(made, tmp_path, sent).there == 1
    assert sent.paths == ["flame.html"]
    assert artifacts.sets("shop") == [made]
    assert artifacts.unfinished("shop", later) == []


def test_keep__file_shorter_than_listed_there__sent_again(
    artifacts: ArtifactStore, place: ObjectPlace, tmp_path: Path
) -> None:
    made = artifact_set(tmp_path)
    artifacts.keep(made, tmp_path, Sent())
    place.write(f"{project_key('shop')}/files/{made.id}/{TRACE}", b"cut")
    sent = Sent()
    artifacts.keep(made, tmp_path, sent)
    assert (sent.paths, content(artifacts, made, TRACE)) == ([TRACE], trace_of("s1"))


def test_keep__report_drawn_again_without_the_traces__replaced_and_the_traces_stay(
    artifacts: ArtifactStore, tmp_path: Path
) -> None:
    made = artifact_set(tmp_path)
    first = msgspec.structs.replace(made, files=[*made.files, page_file("PASS", "report.html", tmp_path)])
    artifacts.keep(first, tmp_path, Sent())
    page = page_file("FAIL", "report.html", tmp_path)  # of the same size
    sent = Sent()
    artifacts.keep(msgspec.structs.replace(made, verdict="FAIL", files=[page]), tmp_path, sent)
    (second,) = artifacts.sets("shop")
    assert second == msgspec.structs.replace(made, verdict="FAIL", files=[*made.files, page])
    assert (sent.paths, content(artifacts, second, "report.html")) == (["report.html"], b"FAIL")
    assert content(artifacts, second, TRACE) == trace_of("s1")


def test_remove__one_of_two__the_other_is_whole(artifacts: ArtifactStore, place: ObjectPlace, tmp_path: Path) -> None:
    made = [artifact_set(tmp_path / name, session=name) for name in ("a", "b")]
    for one, name in zip(made, ("a", "b")):
        artifacts.keep(one, tmp_path / name, Sent())
    artifacts.remove("shop", made[0].id)
    assert artifacts.sets("shop") == [made[1]]
    assert content(artifacts, made[1], TRACE) == trace_of("b")
    assert place.size(f"{project_key('shop')}/files/{made[0].id}/{TRACE}") is None
    assert artifacts.unfinished("shop", datetime.now(timezone.utc) + timedelta(minutes=1)) == []


def test_sets__several__oldest_first_and_of_the_project_alone(artifacts: ArtifactStore, tmp_path: Path) -> None:
    kept = {}
    for day, project in ((3, "shop"), (1, "shop"), (2, "other shop")):
        folder = tmp_path / str(day)
        kept[day] = artifact_set(folder, session=str(day), project=project, kept_at=f"2026-03-0{day}T00:00:00+00:00")
        artifacts.keep(kept[day], folder, Sent())
    assert artifacts.sets("shop") == [kept[1], kept[3]]
    assert artifacts.sets("other shop") == [kept[2]]
    assert artifacts.find("shop", kept[2].id) is None
    assert artifacts.at(project_key("shop"), kept[2].id) is None


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"{", "truncated"), (b'{"id": 1}', "at"), (b"\xff", "UTF-8")],
)
def test_sets__damaged_record__named(
    artifacts: ArtifactStore, place: ObjectPlace, tmp_path: Path, data: bytes, words: str
) -> None:
    made = artifact_set(tmp_path)
    artifacts.keep(made, tmp_path, Sent())
    place.write(f"{project_key('shop')}/sets/{made.id}.json", data)
    with pytest.raises(StoreError, match=words) as raised:
        artifacts.sets("shop")
    assert made.id in str(raised.value)


def test_links__with_an_address__below_it_and_without_one_the_place(
    artifacts: ArtifactStore, place: ObjectPlace, tmp_path: Path
) -> None:
    made = artifact_set(tmp_path)
    path = f"{project_key('shop')}/files/{made.id}/{TRACE}"
    assert artifacts.links(made)[0].address == f"{ADDRESS}/{path}"
    link = ArtifactStore(place, "").links(made)[0]
    assert (link.address, link.place) == ("", f"{place.name}/{path}")
