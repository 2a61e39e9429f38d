"""Whether the libraries that torch_npu loads are where the dynamic linker looks, told without loading one."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from perfgate.measuring.devices.host import Host

# What libtorch_npu.so of torch_npu 2.13.0 is linked to (readelf); without one of them `import torch` fails where torch
# loads its backends itself, and `import torch_npu` everywhere.
NEEDED = ("libascendcl.so", "libhccl.so", "libacl_op_compiler.so", "libge_runner.so", "libgraph.so")
# The driver's, which CANN opens when it opens a card.
DRIVER = "libascend_hal.so"
_DEFAULT = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
_MOST_FILES = 200


def missing_libraries(host: Host, names: tuple[str, ...] = NEEDED) -> list[str]:
    """Those of ``names`` that lie in no folder the dynamic linker looks in."""
    folders = list(dict.fromkeys(_folders(host)))
    return [name for name in names if not any(_is_there(folder / name) for folder in folders)]


def _folders(host: Host) -> Iterator[Path]:
    # The order of ld.so(8), and the RPATH of libtorch_npu.so: $ORIGIN/../../torch_npu.libs.
    packages = host.package_folder("torch-npu")
    if packages is not None:
        yield from (packages / "torch_npu.libs", packages / "torch_npu" / "lib")
    for entry in host.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if entry:
            yield host.below(entry)
    yield from (host.below(folder) for folder in _configured(host, host.below("/etc/ld.so.conf"), set()))
    triplet = f"{platform.machine()}-linux-gnu"
    yield from (host.below(folder) for folder in (*_DEFAULT, f"/lib/{triplet}", f"/usr/lib/{triplet}"))


def _configured(host: Host, file: Path, read: set[Path]) -> Iterator[str]:
    """Yield the folders of ld.so.conf and of what it includes, no file twice."""
    if file in read or len(read) >= _MOST_FILES:
        return
    read.add(file)
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.partition("#")[0].split()
        if len(words) == 2 and words[0] == "include":
            pattern = words[1] if words[1].startswith("/") else f"/etc/{words[1]}"
            folder, name = host.below(pattern).parent, host.below(pattern).name
            for included in sorted(folder.glob(name or "*")):
                yield from _configured(host, included, read)
        elif len(words) == 1 and words[0].startswith("/"):
            yield words[0]


def _is_there(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except OSError:
        return False
