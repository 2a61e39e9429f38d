"""The Containerfile, held against the repository without a registry."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import click

from perfgate.cli.commands.serve import COMMAND as SERVE

ROOT = Path(__file__).resolve().parents[2]
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in re.sub(r"\\\n\s*", "", (ROOT / "Containerfile").read_text(encoding="utf-8")).splitlines()
    if line and not line.startswith("#")
]


def of(name: str) -> list[str]:
    return [text for instruction, text in INSTRUCTIONS if instruction == name]


def test_containerfile__its_instructions__are_known_and_its_scripts_parse() -> None:
    known = {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    assert {instruction for instruction, _ in INSTRUCTIONS} == known
    for script in of("RUN"):
        subprocess.run(["sh", "-n", "-c", script], check=True)


def test_containerfile__what_it_copies__is_all_that_the_wheel_is_built_from() -> None:
    copied = [source for text in of("COPY") if not text.startswith("--from") for source in text.split()[:-1]]
    assert [source for source in copied if not (ROOT / source).exists()] == []
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'^(?:readme = |license-files = \[|packages = \[)"([^"]+)"', pyproject, flags=re.MULTILINE)
    assert {*named, "pyproject.toml", "hatch_build.py", "schemas"} == set(copied)


def test_containerfile__versions__are_those_of_the_tests() -> None:
    arguments = dict(text.partition("=")[::2] for text in of("ARG"))
    assert arguments["TORCH"] == re.findall(r"^TORCH \?= (\S+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)[0]
    assert f'python: "{arguments["PYTHON"]}"' in (ROOT / ".github" / "workflows" / "check.yml").read_text()
    assert {text.split()[0] for text in of("FROM")} == {"docker.io/library/python:${PYTHON}-slim"}


def test_containerfile__what_runs__is_perfgate_without_rights() -> None:
    """In the image of the service, and in the last one, which is built by default."""
    assert of("USER") == ["1000:1000"] * 2
    assert [json.loads(text) for text in of("ENTRYPOINT")] == [["perfgate"]] * 2
    served, default = (json.loads(text) for text in of("CMD"))
    assert default == ["--help"]
    options = SERVE.make_parser(click.Context(SERVE)).parse_args(served[1:])[0]
    assert (served[0], options["location"], options["host"]) == ("serve", "/data/store.db", "0.0.0.0")
    assert of("EXPOSE") == [str(next(option.default for option in SERVE.params if option.name == "port"))]


def test_containerfile__extras_of_the_service__are_in_the_project() -> None:
    (extras,) = re.findall(r"\$1\[([\w,]+)\]", " ".join(of("RUN")))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{extra} = \[", project, flags=re.MULTILINE) for extra in extras.split(","))
