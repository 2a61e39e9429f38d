"""Builds the library that stands in for CANN, against the torch and torch_npu of the running Python.

    python tests/softnpu/build.py build/softnpu
    . build/softnpu/set_env.sh

Headers come from the installed wheels; nothing of CANN is needed. Only what changed is compiled again.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import environment

SOURCES = Path(__file__).resolve().parent / "library"

# Every library name that the wheel needs or opens at run time; all of them are links to one file, which glibc loads once.
NAMES = (
    "libascendcl",
    "libhccl",
    "libacl_op_compiler",
    "libge_runner",
    "libgraph",
    "libacl_tdt_channel",
    "libopapi",
    "libmsprofiler",
    "libascend_hal",
    "libnnopbase",
)
# What the wheel imports and the sources do not define gets a stub, if its name is one of CANN's.
OURS = re.compile(r"(acl|Hccl|rt[A-Z]|Msprof)")
STUB = """__attribute__((visibility("default"))) int {name}(void) {{
  if (getenv("SOFTNPU_VERBOSE")) fprintf(stderr, "[soft-npu] stub {name}\\n");
  return 200001;
}}
"""


def main() -> None:
    """Build into the folder named on the command line."""
    if len(sys.argv) != 2:
        sys.exit("usage: python build.py FOLDER")
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    torch, torch_npu = package("torch"), package("torch_npu")
    objects = compile_sources(folder, torch, torch_npu)
    stubs = missing_symbols(objects, torch, torch_npu)
    objects.append(compile_stubs(folder, stubs))
    library = link(folder, objects, torch)
    (folder / "set_env.sh").write_text(environment.script(folder))
    print(f"built {library} ({library.stat().st_size >> 10} KiB, {len(stubs)} stubs, {len(NAMES)} names)")


def package(name: str) -> Path:
    """Return the folder of an installed package without importing it: the import needs the library built here."""
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"{name} is not installed for {sys.executable}")
    return Path(spec.submodule_search_locations[0])


def compile_sources(folder: Path, torch: Path, torch_npu: Path) -> list[Path]:
    """Compile what is older than its source, a header or the wheels, all at once."""
    includes = [
        torch / "include",
        torch / "include/torch/csrc/api/include",
        torch_npu / "include/third_party/acl/inc",
        torch_npu / "include/third_party/hccl/inc",
        torch_npu / "include",
    ]
    # torch's headers use concepts since 2.12.
    concepts = "requires " in (torch / "include/c10/util/Exception.h").read_text()
    flags = [f"-std=c++{20 if concepts else 17}", "-O1", "-fPIC", "-fvisibility=hidden", "-w"]
    flags += [f"-I{include}" for include in includes]
    shared = [*SOURCES.glob("*.h"), torch / "version.py", torch_npu / "version.py", Path(__file__)]
    newest_shared = max(path.stat().st_mtime for path in shared if path.exists())
    objects, compilers = [], {}
    for source in sorted(SOURCES.glob("*.cpp")):
        target = folder / f"{source.stem}.o"
        objects.append(target)
        if target.exists() and target.stat().st_mtime > max(newest_shared, source.stat().st_mtime):
            continue
        compilers[source] = subprocess.Popen(["g++", *flags, "-c", str(source), "-o", str(target)])
    failed = [source.name for source, compiler in compilers.items() if compiler.wait()]
    if failed:
        sys.exit(f"not compiled: {', '.join(failed)}")
    return objects


def missing_symbols(objects: list[Path], torch: Path, torch_npu: Path) -> list[str]:
    """Return the C functions that the wheel imports and nothing on this machine defines."""
    wheel = [torch_npu / "lib" / name for name in ("libtorch_npu.so", "libtensorpipe.so", "libnpu_profiler.so")]
    wheel += torch_npu.glob("_C.*.so")
    needed = set().union(*(symbols(path, "-D", "--undefined-only") for path in wheel))
    known = set().union(*(symbols(path, "-D", "--defined-only") for path in [*(torch / "lib").glob("*.so"), *wheel]))
    known |= set().union(*(symbols(path, "--defined-only") for path in objects))
    return sorted(name for name in needed - known if OURS.match(name))


def symbols(path: Path, *flags: str) -> set[str]:
    """Return the symbol names that nm lists, without their versions."""
    listing = subprocess.run(["nm", *flags, str(path)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listing.splitlines() if line.split()}


def compile_stubs(folder: Path, names: list[str]) -> Path:
    """Compile one function that returns an error for each name."""
    source = folder / "stubs.c"
    source.write_text("#include <stdio.h>\n#include <stdlib.h>\n" + "".join(STUB.format(name=name) for name in names))
    target = folder / "stubs.o"
    subprocess.run(["gcc", "-fPIC", "-c", str(source), "-o", str(target)], check=True)
    return target


def link(folder: Path, objects: list[Path], torch: Path) -> Path:
    """Link the library and its names; a running process keeps the file it has loaded."""
    library, fresh = folder / "libsoftnpu.so", folder / "libsoftnpu.so.new"
    search = [f"-L{torch}/lib", f"-Wl,-rpath,{torch}/lib", "-ltorch_cpu", "-lc10", "-lpthread"]
    command = ["g++", "-shared", "-o", str(fresh), *map(str, objects), *search, "-Wl,-soname,libsoftnpu.so"]
    subprocess.run(command, check=True)
    fresh.replace(library)
    for name in NAMES:
        alias = folder / f"{name}.so"
        alias.unlink(missing_ok=True)
        alias.symlink_to(library.name)
    return library


if __name__ == "__main__":
    main()
