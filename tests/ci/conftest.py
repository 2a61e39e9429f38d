"""A repository on the fake GitHub, with prism between it and its clients; the package of this checkout is built once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ci.act import Hub
from tests.ci.packages import Packages
from tests.ci.prism import prism_proxy
from tests.fakes.forge import FakeForge
from tests.fakes.forge_dialects import GitHubDialect


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return Packages.build(tmp_path_factory.mktemp("packages"))


@pytest.fixture
def hub(tmp_path: Path, packages: Packages) -> Iterator[Hub]:
    with FakeForge(GitHubDialect()) as forge, prism_proxy(forge, tmp_path / "prism") as prism:
        yield Hub(tmp_path, forge, prism.api_url, packages)
        assert (forge.violations, prism.violations()) == ([], [])
