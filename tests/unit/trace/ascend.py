"""Helpers of the tests of Ascend's readers: recorded samples, unpacked, and small tables as text."""

import gzip
import shutil

from perfgate.trace.model.events import KINDS
from tests.samples import recorded

ALEXNET = "msinsight-910B-alexnet-2501"
QWEN = "msinsight-910B-qwen3-cann8.3RC1-2511/level2"
GPT = "msinsight-gpt3-cann7-2309"


def sample(name, folder):
    """Copy a recorded sample into a folder, with its gzipped files unpacked as the profiler wrote them."""
    source = recorded(name)
    for path in [source] if source.is_file() else sorted(source.rglob("*")):
        target = folder / path.relative_to(source.parent)
        if path.is_dir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".gz" and not path.name.endswith(".json.gz"):
            target.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        else:
            shutil.copy(path, target)
    found = folder / source.name
    return found if found.exists() else found.with_suffix("")


def kinds(events):
    """Count events by kind."""
    counted = {}
    for code in events.kind.tolist():
        counted[KINDS[code]] = counted.get(KINDS[code], 0) + 1
    return counted


def groups(events):
    """Count events by what a table of operators counts them under."""
    counted = {}
    for number in events.group.tolist():
        counted[events.names[number]] = counted.get(events.names[number], 0) + 1
    return counted


def written(folder, name, text):
    """Write a file of a profiler's folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
