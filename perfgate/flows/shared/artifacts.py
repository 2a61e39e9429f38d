"""The artifact store of a project, and the files of a folder or artifact that go there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from perfgate.config import CONFIG_NAME, Config, load_config
from perfgate.document.kept import (
    REPORT_PAGE,
    ArtifactSet,
    KeptOfRun,
    copy_listed,
    page_file,
)
from perfgate.errors import StoreError, StoreRefusedError
from perfgate.judging.store.artifacts import ArtifactStore, KeptArtifacts, Sending
from perfgate.judging.store.objects import ObjectPlace
from perfgate.judging.store.store import SERVICE_SCHEMES, place_in, store_location

ARTIFACTS_VARIABLE = "PERFGATE_ARTIFACTS"
# The path of a service under which the files of the store have their addresses.
SERVED = "/artifacts"


def artifacts_location(config: Config, environ: Mapping[str, str]) -> str:
    """PERFGATE_ARTIFACTS, else ``[artifacts] path``, which is relative to
    perfgate.toml; "" if the project keeps none.
    """
    if environ.get(ARTIFACTS_VARIABLE):
        return environ[ARTIFACTS_VARIABLE]
    path = config.artifacts.path
    if "://" in path or not path:
        return path
    return place_in(config.root, path)


def artifacts_location_in(
    location: str | None, folder: Path, environ: Mapping[str, str]
) -> str:
    """A location of the command line, else as ``artifacts_location`` of the project in
    the folder, if there is one.
    """
    if location or environ.get(ARTIFACTS_VARIABLE):
        return location or environ[ARTIFACTS_VARIABLE]
    there = (folder / CONFIG_NAME).is_file()
    if there:
        return artifacts_location(load_config(folder, needs_workload=False), environ)
    return ""


def open_artifacts(config: Config, environ: Mapping[str, str]) -> ArtifactStore | None:
    """The artifact store of a project, opened on first use; None if it has none."""
    location = artifacts_location(config, environ)
    address = config.artifacts.url
    if not location:
        return None
    if not address:
        store = store_location(config, environ)
        if store.startswith(SERVICE_SCHEMES):
            address = store.rstrip("/") + SERVED
    return open_artifacts_at(location, environ, address)


def open_artifacts_at(
    location: str, environ: Mapping[str, str], address: str
) -> ArtifactStore:
    """The artifact store at a location; its files have their addresses below
    ``address``.
    """
    return ArtifactStore(ObjectPlace(location, environ), address)


def kept_reader(
    store: ArtifactStore | None, project: str
) -> Callable[[str], KeptOfRun]:
    """A function from the id of a run to its kept files; a store that cannot be read
    costs a page its links alone.
    """

    def read(run_id: str) -> KeptOfRun:
        if store is None:
            return KeptOfRun()
        try:
            run = store.find(project, run_id)
        except StoreError as error:
            return KeptOfRun(why=str(error))
        if run is None:
            return KeptOfRun()
        return KeptOfRun(links=store.links(run))

    return read


def keep_artifacts(
    store: ArtifactStore,
    artifacts: ArtifactSet,
    sources: Iterable[Path | bytes],
    sending: Sending,
    *,
    page: str | None = None,
) -> KeptArtifacts:
    """Keep the listed files of a set that one of the sources holds, and a report page,
    which no document lists.

    Raises DocumentError if a source cannot be read, StoreError if the store refuses.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="perfgate-artifacts-") as name:
            folder = Path(name)
            missing = artifacts.files
            left_out = list[str]()
            for source in sources:
                if not missing:
                    break
                copied, left_out = copy_listed(source, missing, folder)
                missing = [file for file in missing if file not in copied]
            files = [file for file in artifacts.files if file not in missing]
            if page is not None:
                files.append(page_file(page, REPORT_PAGE, folder))
            found = replace(artifacts, files=files)
            if not files:
                return KeptArtifacts(found, store.name, left_out=left_out)
            return store.keep(found, folder, sending)._replace(left_out=left_out)
    except OSError as error:
        raise StoreRefusedError(
            "the artifacts cannot be copied to {folder} before they are sent: {why}; free space there, or set TMPDIR",
            folder=tempfile.gettempdir(),
            why=error.strerror or error,
        ) from error
