"""What holds of a folder holds of a bucket; and what only a bucket has: credentials, an address, uploads in parts."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from perfgate.cli.commands.store import COMMAND
from perfgate.errors import StoreError, StoreRefusedError
from perfgate.flows.shared.artifacts import SERVED, open_artifacts_at
from perfgate.judging.store.layout import project_key
from perfgate.judging.store.objects import ObjectPlace
from tests.contract.artifact_suite import *  # noqa: F403 - the tests themselves
from tests.contract.artifact_suite import TRACE, Sent
from tests.fakes.artifacts import artifact_set, run_folder, trace_of
from tests.fakes.runner import separating_runner
from tests.fakes.service import SERVER_TOKEN, listening, serve_folder


def boto(environ: dict[str, str]):  # type: ignore[no-untyped-def]
    import boto3

    return boto3.client("s3", endpoint_url=environ["AWS_ENDPOINT_URL"])


def test_upload__command__objects_of_their_type_at_their_address(
    environ: dict[str, str], bucket: str, tmp_path: Path
) -> None:
    (tmp_path / "perfgate.toml").write_text(
        f'project = "shop"\nworkload = "w.py:encoder"\n[artifacts]\npath = "s3://{bucket}/p"\n'
        f'url = "{environ["AWS_ENDPOINT_URL"]}/{bucket}/p"\n'
    )
    run_folder(tmp_path / "run")
    done = separating_runner().invoke(COMMAND, ["upload", str(tmp_path / "run"), "-C", str(tmp_path)], env=environ)
    assert done.exit_code == 0, done.exception
    first, *addresses = done.stdout.splitlines()
    assert first.startswith(f"artifacts sent to s3://{bucket}/p: 2 (")
    reading = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{bucket}/*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [reading]})
    boto(environ).put_bucket_policy(Bucket=bucket, Policy=policy)
    answers = [requests.get(address.strip(), timeout=30) for address in addresses]
    assert [answer.headers["Content-Type"] for answer in answers] == ["application/json", "text/html"]
    assert answers[0].content == trace_of("s1")
    assert "Content-Encoding" not in answers[0].headers


def test_keep__bucket_is_missing__named_with_the_remedy_and_none_is_made(
    environ: dict[str, str], tmp_path: Path
) -> None:
    store = open_artifacts_at("s3://no-such-bucket/p", environ, "")
    with pytest.raises(StoreError, match="create the bucket") as raised:
        store.keep(artifact_set(tmp_path), tmp_path, Sent())
    assert raised.value.exit_code == 2
    with pytest.raises(StoreError, match="no-such-bucket"):
        store.sets("shop")
    assert "no-such-bucket" not in [one["Name"] for one in boto(environ).list_buckets()["Buckets"]]


@pytest.fixture
def strict(server: str) -> Iterator[None]:
    """The server refuses credentials that it does not know, which are all."""
    requests.post(f"{server}/moto-api/reset-auth", data="0", timeout=30)
    yield
    requests.post(f"{server}/moto-api/reset-auth", data="inf", timeout=30)


def test_keep__wrong_credentials__refused_without_them(
    environ: dict[str, str], location: str, tmp_path: Path, strict: None
) -> None:
    with pytest.raises(StoreError, match="AWS_ACCESS_KEY_ID") as raised:
        open_artifacts_at(location, environ, "").keep(artifact_set(tmp_path), tmp_path, Sent())
    assert raised.value.exit_code == 2
    assert environ["AWS_SECRET_ACCESS_KEY"] not in str(raised.value)


def test_keep__server_does_not_answer__said_and_the_exit_code_of_a_refusal(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreRefusedError, match="cannot be reached") as raised:
        open_artifacts_at("s3://bucket/p", environ, "").keep(artifact_set(tmp_path), tmp_path, Sent())
    assert raised.value.exit_code == 4


def test_put__connection_breaks_in_the_middle__no_object_under_its_name(
    environ: dict[str, str], bucket: str, place: ObjectPlace, location: str
) -> None:
    """What a killed uploader leaves: a PUT that announced more than it sent."""
    host = urlsplit(environ["AWS_ENDPOINT_URL"])
    key = f"a/prefix/{project_key('shop')}/files/{'0' * 64}/{TRACE}"
    with socket.create_connection((host.hostname, host.port), timeout=30) as connection:
        head = f"PUT /{bucket}/{key} HTTP/1.1\r\nHost: {host.netloc}\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head.encode() + b"half")
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1000)
    assert place.size(f"{project_key('shop')}/files/{'0' * 64}/{TRACE}") is None


def test_put__larger_than_a_part__sent_in_parts_and_whole(place: ObjectPlace, tmp_path: Path) -> None:
    """s3fs sends from 100 MB on in parts, which become an object when the last one is there."""
    size = 101 * 1024 * 1024
    with (tmp_path / "trace.json").open("wb") as file:
        file.truncate(size)
    place.put("large/trace.json", tmp_path / "trace.json")
    assert place.size("large/trace.json") == size
    assert sum(map(len, place.chunks("large/trace.json", size - 5_000_000, size))) == 5_000_000


def test_service__artifacts_in_a_bucket__streamed_in_ranges(
    environ: dict[str, str], location: str, tmp_path: Path
) -> None:
    made = artifact_set(tmp_path / "run")
    store = open_artifacts_at(location, environ, SERVED)
    store.keep(made, tmp_path / "run", Sent())
    with listening() as address:
        client = serve_folder(address, tmp_path, artifacts=location).client(SERVER_TOKEN)
        link = next(link.address for link in store.links(made) if link.path == TRACE)
        assert client.get(link).content == trace_of("s1")
        assert client.get(link, headers={"Range": "bytes=2-5"}).content == trace_of("s1")[2:6]
