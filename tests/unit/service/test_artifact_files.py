"""Kept artifacts over HTTP: linked by the page of a run, streamed whole or in ranges, for those who may read the project."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from perfgate.document.kept import ArtifactSet, page_file
from perfgate.judging.store.layout import project_key
from perfgate.judging.store.runs import record_run
from tests.fakes.artifacts import FLAME, artifact_set, run_folder, trace_of
from tests.fakes.service import SERVER_TOKEN, Service

TRACE = "trace-encoder-short.json.gz"
PACKED = trace_of("s1")


@pytest.fixture
def kept(service: Service, tmp_path: Path) -> ArtifactSet:
    """A stored run of the project shop with a trace, a flame graph and a report."""
    folder = tmp_path / "run"
    record_run(service.store, run_folder(folder))
    made = artifact_set(folder)
    made = msgspec.structs.replace(made, files=[*made.files, page_file("report", "report.html", folder)])
    service.artifacts.keep(made, folder, lambda *_: None)
    return made


def address(kept: ArtifactSet, path: str) -> str:
    return f"/artifacts/{project_key('shop')}/files/{kept.id}/{path}"


def test_page_of_a_run__its_artifacts__every_link_opens(service: Service, kept: ArtifactSet) -> None:
    client = service.client(service.token("shop", "read"))
    page = client.get(f"/projects/shop/runs/{kept.id[:12]}.html").text
    links = re.findall(r'href="(/artifacts/[^"]+)"', page)
    assert links == [address(kept, file.path) for file in kept.files]
    assert [client.get(link).content for link in links] == [PACKED, FLAME, b"report"]
    listed = client.get(f"/artifacts/{project_key('shop')}/sets/{kept.id}.json")
    assert msgspec.json.decode(listed.content, type=ArtifactSet) == kept


def test_page_of_a_run__record_is_damaged__says_so_without_a_place(
    service: Service, kept: ArtifactSet, tmp_path: Path
) -> None:
    (tmp_path / "kept" / project_key("shop") / "sets" / f"{kept.id}.json").write_bytes(b"{")
    client = service.client(SERVER_TOKEN)
    page = client.get(f"/projects/shop/runs/{kept.id[:12]}.html")
    assert (page.status_code, "the artifact store cannot be read now" in page.text) == (200, True)
    answer = client.get(address(kept, TRACE))
    assert answer.status_code == 503
    assert str(tmp_path) not in page.text + answer.text


@pytest.mark.parametrize(
    ("asked", "status", "part", "content_range"),
    [
        ("bytes=0-3", 206, PACKED[:4], f"bytes 0-3/{len(PACKED)}"),
        ("bytes=2-", 206, PACKED[2:], f"bytes 2-{len(PACKED) - 1}/{len(PACKED)}"),
        ("bytes=-5", 206, PACKED[-5:], f"bytes {len(PACKED) - 5}-{len(PACKED) - 1}/{len(PACKED)}"),
        ("bytes=-99999", 206, PACKED, f"bytes 0-{len(PACKED) - 1}/{len(PACKED)}"),
        ("bytes=5-99999", 206, PACKED[5:], f"bytes 5-{len(PACKED) - 1}/{len(PACKED)}"),
        # What is no single range of bytes is ignored (RFC 9110, 14.2).
        ("bytes=4-2", 200, PACKED, None),
        ("bytes=0-1,3-4", 200, PACKED, None),
        ("lines=0-1", 200, PACKED, None),
        ("bytes=-", 200, PACKED, None),
    ],
)
def test_file__range__these_bytes(
    service: Service, kept: ArtifactSet, asked: str, status: int, part: bytes, content_range: str | None
) -> None:
    answer = service.client(SERVER_TOKEN).get(address(kept, TRACE), headers={"Range": asked, "Accept-Encoding": ""})
    assert (answer.status_code, answer.content) == (status, part)
    assert answer.headers.get("Content-Range") == content_range
    assert answer.headers["Content-Length"] == str(len(part))


@pytest.mark.parametrize("asked", [f"bytes={len(PACKED)}-", "bytes=-0"])
def test_file__range_behind_the_end__refused_with_the_size(service: Service, kept: ArtifactSet, asked: str) -> None:
    answer = service.client(SERVER_TOKEN).get(address(kept, TRACE), headers={"Range": asked})
    assert (answer.status_code, answer.headers["Content-Range"]) == (416, f"bytes */{len(PACKED)}")


def test_file__page_of_a_runner__may_neither_send_nor_act_for_its_reader(service: Service, kept: ArtifactSet) -> None:
    client = service.client(SERVER_TOKEN)
    flame, report, trace = (client.get(address(kept, path)).headers for path in ("flame.html", "report.html", TRACE))
    policies = [headers["Content-Security-Policy"] for headers in (flame, report)]
    assert all("default-src 'none'" in policy and "form-action 'none'" in policy for policy in policies)
    assert "sandbox allow-scripts" in policies[0]
    assert "allow-same-origin" not in policies[0]
    assert "script-src" not in policies[1]
    assert trace["Content-Disposition"] == f'attachment; filename="{TRACE}"'
    assert trace["Content-Type"] == "application/gzip"
    assert flame["X-Content-Type-Options"] == trace["X-Content-Type-Options"] == "nosniff"


def test_file__token_of_another_project_or_none__refused(service: Service, kept: ArtifactSet) -> None:
    for path in (address(kept, TRACE), f"/artifacts/{project_key('shop')}/sets/{kept.id}.json"):
        assert service.client(service.token("shop", "read")).get(path).status_code == 200
        assert service.client(service.token(None, "read")).get(path).status_code == 200
        assert service.client(service.token("other", "write")).get(path).status_code == 404
        assert service.client().get(path).status_code == 401


def test_file__what_is_not_listed__not_found(service: Service, kept: ArtifactSet, tmp_path: Path) -> None:
    (tmp_path / "kept" / project_key("shop") / "files" / kept.id / "planted.html").write_text("x")
    client, key = service.client(SERVER_TOKEN), project_key("shop")
    wrong = [
        address(kept, "planted.html"),
        address(kept, "..%2F..%2Fsets%2F" + kept.id + ".json"),
        address(kept, "../../../../store.db"),
        f"/artifacts/{key}/files/{'0' * 64}/{TRACE}",
        f"/artifacts/{project_key('other')}/files/{kept.id}/{TRACE}",
    ]
    assert [client.get(path).status_code for path in wrong] == [404] * len(wrong)
    assert client.get(f"/artifacts/{key}/files/short/{TRACE}").status_code == 400
