"""A server of S3 for all tests, and a bucket for each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

# The key that the server's own client makes buckets with.
KEY = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing-secret", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a server."""
    moto = pytest.importorskip("moto.server", reason="make test-s3 installs it")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def environ(server: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a job that may write, which is also this process's."""
    settings = {**KEY, "AWS_ENDPOINT_URL": server}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return settings


@pytest.fixture
def bucket(environ: dict[str, str]) -> str:
    import boto3

    name = f"perf-{uuid.uuid4().hex}"
    boto3.client("s3", endpoint_url=environ["AWS_ENDPOINT_URL"]).create_bucket(Bucket=name)
    return name


@pytest.fixture
def location(bucket: str) -> str:
    return f"s3://{bucket}/a/prefix"
