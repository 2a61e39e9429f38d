"""Build the wheels and the sdist and check them as a user gets them. Nothing is uploaded.

The pure wheel is for every machine; that of this one's platform holds the compiled scanner of traces beside it. With
``--platform`` only the latter is made, for another processor.

python -m pip install --require-hashes -r .ci/release-requirements.txt
python .ci/release.py --tag v0.1.0 --out dist
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION_FILE = ROOT / "perfgate" / "version.py"
CHANGELOG = ROOT / "CHANGELOG.md"
# What the wheel force-includes beside the package (pyproject.toml).
MOVED = {"schemas": "perfgate/schemas"}
# What has distributions of its own.
PLUGINS = "plugins/"
# What PyPI takes of compiled code, and what is compiled (hatch_build.py).
PLATFORM = "manylinux_2_17"
SCANNER = "perfgate/trace/scanner/_scanner.so"
# The demo's verdicts. A busy machine may leave the harmless change undecided; the mistake shows in exact counts.
DEMO_VERDICTS = {"refactor": {"PASS", "INCONCLUSIVE"}, "mistake": {"FAIL"}}


class ReleaseError(Exception):
    """The distributions must not be published; the text says why."""


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--out",
        type=Path,
        default=ROOT / "dist",
        help="An empty or new folder for wheel and sdist.",
    )
    options.add_argument(
        "--tag", help="The tag of the release; it must be v and the version."
    )
    options.add_argument(
        "--torch", default="torch==2.13.0", help="What pip installs for the demo."
    )
    options.add_argument(
        "--platform",
        action="store_true",
        help="Make the wheel of this platform alone, without the demo.",
    )
    options.add_argument(
        "--no-demo", action="store_true", help="Skip the demo, which takes minutes."
    )
    arguments = options.parse_args()
    try:
        version = read_version(arguments.tag)
        made = build(arguments.out.resolve(), platform_only=arguments.platform)
        compiled = next(
            path
            for path in made
            if path.suffix == ".whl" and not path.name.endswith("-any.whl")
        )
        check_compiled(compiled)
        for path in made:
            if path.suffix == ".whl":
                check_wheel(path, compiled=path == compiled)
            else:
                check_sdist(path)
        run(
            "twine", sys.executable, "-m", "twine", "check", "--strict", *map(str, made)
        )
        with tempfile.TemporaryDirectory() as folder:
            torch = "" if arguments.no_demo or arguments.platform else arguments.torch
            check_installed(compiled, version, Path(folder), torch=torch)
    except ReleaseError as error:
        sys.exit(f"release: {error}")
    say(f"perfgate {version} may be published: {', '.join(path.name for path in made)}")


def read_version(tag: str | None) -> str:
    """The version, which the tag and the changelog must name too; a release, which has a tag, is dated there."""
    version = re.search(
        r'__version__ = "(.+)"', VERSION_FILE.read_text(encoding="utf-8")
    )[1]
    if tag is not None and tag != f"v{version}":
        raise ReleaseError(
            f"the tag is {tag}, but {VERSION_FILE.name} says {version}; the tag must be v{version}"
        )
    heading = re.search(
        rf"^## {re.escape(version)}\b(.*)",
        CHANGELOG.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    if heading is None:
        raise ReleaseError(
            f"CHANGELOG.md has no section `## {version}`; write what is in it"
        )
    if tag is not None and not re.fullmatch(r" \(\d{4}-\d{2}-\d{2}\)", heading[1]):
        raise ReleaseError(
            f"CHANGELOG.md says `{heading[0]}`; a release has a date: `## {version} (2026-01-31)`"
        )
    return version


def build(out: Path, *, platform_only: bool) -> list[Path]:
    """The wheels are built from the sdist, as pip would do it. Timestamps are the commit's, so that a rebuild is equal."""
    if out.exists() and any(out.iterdir()):
        raise ReleaseError(
            f"{out} is not empty; give the distributions a folder of their own"
        )
    epoch = git("log", "-1", "--format=%ct").strip()
    for kind in (PLATFORM,) if platform_only else ("pure", PLATFORM):
        only = ["--wheel"] if kind == PLATFORM else []
        command = [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            *only,
            "--outdir",
            str(out),
            str(ROOT),
        ]
        run("build", *command, SOURCE_DATE_EPOCH=epoch, PERFGATE_WHEEL=kind)
    return sorted(out.iterdir())


def check_compiled(wheel: Path) -> None:
    """The compiled library asks for no newer C library than the wheel's platform has."""
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read(SCANNER)
    newest = max(
        (int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library)), default=0
    )
    if newest > int(PLATFORM.rpartition("_")[2]):
        raise ReleaseError(
            f"{SCANNER} needs glibc 2.{newest}, and the wheel says {PLATFORM}"
        )


def check_wheel(wheel: Path, *, compiled: bool) -> None:
    """The wheel holds the committed files of the package and nothing else but what was compiled."""
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    expected = {path for path in committed() if path.startswith("perfgate/")}
    for folder, target in MOVED.items():
        expected |= {
            target + path.removeprefix(folder)
            for path in committed()
            if path.startswith(f"{folder}/")
        }
    expected |= {SCANNER} if compiled else set()
    metadata = {path for path in packed if ".dist-info/" in path}
    compare("the wheel", packed - metadata, expected)
    if not any(path.endswith("/licenses/LICENSE") for path in metadata):
        raise ReleaseError(
            "the wheel has no licence text; see license-files in pyproject.toml"
        )


def check_sdist(sdist: Path) -> None:
    """The sdist holds every committed file but the plug-ins, so that the tests can be run from it."""
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    compare(
        "the sdist",
        packed - {"PKG-INFO"},
        {path for path in committed() if not path.startswith(PLUGINS)},
    )


def compare(archive: str, packed: set[str], expected: set[str]) -> None:
    for kind, paths in (
        ("lacks", expected - packed),
        ("has too much:", packed - expected),
    ):
        if paths:
            raise ReleaseError(
                f"{archive} {kind} {', '.join(sorted(paths)[:20])} ({len(paths)} in all)"
            )


def check_installed(wheel: Path, version: str, folder: Path, *, torch: str) -> None:
    """Install the wheel into a new environment and use it away from the checkout. Without ``torch`` the demo is left out."""
    venv.create(folder / "venv", with_pip=True)
    python = folder / "venv" / "bin" / "python"
    run(
        "install",
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        str(wheel),
        *filter(None, [torch]),
        cwd=folder,
    )
    perfgate = str(python.with_name("perfgate"))
    answer = run("version", perfgate, "--version", cwd=folder).strip()
    if not answer.endswith(f" {version}"):
        raise ReleaseError(
            f"`perfgate --version` of the wheel says {answer!r} instead of {version}"
        )
    run("explain", perfgate, "explain", "7", "--lang", "zh", cwd=folder)
    if torch:
        check_demo(perfgate, folder)


def check_demo(perfgate: str, folder: Path) -> None:
    demo = subprocess.run(
        [perfgate, "demo", "--dir", str(folder / "demo")],
        cwd=folder,
        env=environment(),
        check=False,
    )
    for change, allowed in DEMO_VERDICTS.items():
        decision = folder / "demo" / "results" / change / "decision.json"
        if not decision.exists():
            raise ReleaseError(
                f"the demo of the wheel ended with {demo.returncode} before it judged {change}"
            )
        verdict = json.loads(decision.read_text(encoding="utf-8"))["verdict"]
        if verdict not in allowed:
            raise ReleaseError(
                f"the demo of the wheel says {verdict} of {change}, expected {' or '.join(sorted(allowed))}"
            )
        say(f"demo: {change} is {verdict}")


def committed() -> set[str]:
    return set(git("ls-files", "-z").split("\0")) - {""}


def git(*arguments: str) -> str:
    # In a container another user owns the checkout, and git would refuse it.
    return run(
        "git", "git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *arguments
    )


def environment() -> dict[str, str]:
    """The environment without what would let the checkout or another environment shine through."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }


def run(name: str, *command: str, cwd: Path = ROOT, **variables: str) -> str:
    """The output of a command. Raises ReleaseError with its end where it fails."""
    if name != "git":
        say(f"{name} ...")
    env = {**environment(), **variables}
    process = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise ReleaseError(
            f"{name} failed ({process.returncode}):\n{(process.stdout + process.stderr)[-4000:]}"
        )
    return process.stdout


def say(text: str) -> None:
    sys.stdout.write(f"release: {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
