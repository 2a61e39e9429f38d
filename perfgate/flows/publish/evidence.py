"""Find the URLs of the files that a comment names; they come from the forge's list of artifacts, not from the artifacts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from perfgate.document.run import Artifact
from perfgate.errors import ForgeError
from perfgate.flows.shared.ci_artifact import newest
from perfgate.judging.forge.forge import CiEvent, Forge

# The folder of the measuring job that GitLab stores file by file.
_FOLDER = "perfgate-out"
# A path inside it that needs no escaping and leads nowhere else.
_PLAIN_PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._/-]*")


def evidence_pages(forge: Forge, event: CiEvent, key: str, links: Iterable[Artifact]) -> Mapping[str, str]:
    """The URL of every stored file that has one, by path; empty if the forge lists nothing.

    A forge that stores an archive file by file has a URL for each. On the others a flame graph is a separate artifact, which
    opens in the browser, and a trace is in the archive of the traces.
    """
    try:
        artifacts = forge.artifacts()
    except ForgeError:
        return {}
    documents, flame, traces = (
        newest(artifacts, f"perfgate-{key}-", event.run_attempt, suffix=suffix)
        for suffix in ("", "-flame.html", "-traces")
    )
    pages = {}
    for link in links:
        kept = flame if link.kind == "flamegraph" else traces
        if documents and documents.files_url and _PLAIN_PATH.fullmatch(link.path):
            pages[link.path] = f"{documents.files_url}{_FOLDER}/{link.path}"
        elif kept and kept.url and not kept.files_url:
            pages[link.path] = kept.url
    return pages
