"""templates/perfgate.yml: valid with every input, code of a change never beside the token, scripts a shell can read."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from perfgate.cli.main import cli
from tests.ci_schema import assert_valid

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "templates" / "perfgate.yml"
OWN = ROOT / ".gitlab-ci.yml"
INPUT = re.compile(r"\$\[\[ inputs\.([\w-]+) ]]")
TRUSTED = {
    "perfgate-publish": "perfgate-publish",
    "perfgate-baseline": "perfgate-main",
    "perfgate-command": "perfgate-main",
    "perfgate-answer": "perfgate-publish",
    "perfgate-weekly": "perfgate-main",
}
UNTRUSTED = {"perfgate-measure", "perfgate-confirm", "perfgate-bisect"}
PLAN = "perfgate-plan"
ALL = {*TRUSTED, *UNTRUSTED, PLAN}


class Reference(list[str]):
    """What ``!reference`` names."""


class Loader(yaml.SafeLoader):
    """YAML as GitLab reads it."""


Loader.add_constructor("!reference", lambda loader, node: Reference(loader.construct_sequence(node)))


@cache
def documents() -> tuple[dict[str, Any], dict[str, Any]]:
    header, jobs = yaml.load_all(TEMPLATE.read_text(encoding="utf-8"), Loader=Loader)
    return header["spec"]["inputs"], jobs


def expanded(**given: Any) -> dict[str, Any]:
    """Return the jobs with their inputs, references and parents filled in, as GitLab does."""
    inputs, body = documents()
    assert set(given) <= set(inputs)
    values = {name: given.get(name, one.get("default", "the-package")) for name, one in inputs.items()}
    filled = _fill(body, values)
    jobs = {name: _extended(name, filled) for name in filled if not name.startswith(".")}
    return {name: {**job, "script": list(_lines(job["script"], filled))} for name, job in jobs.items()}


def _fill(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, dict):
        return {_fill(key, values): _fill(entry, values) for key, entry in value.items()}
    if isinstance(value, list):
        return type(value)(_fill(entry, values) for entry in value)
    if isinstance(value, str):
        whole = INPUT.fullmatch(value)
        return values[whole[1]] if whole else INPUT.sub(lambda found: _text(values[found[1]]), value)
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _extended(name: str, filled: dict[str, Any]) -> dict[str, Any]:
    job = dict(filled[name])
    base = job.pop("extends", "")
    parent = _extended(base, filled) if base else {}
    tables = {key: {**parent[key], **job[key]} for key in parent.keys() & job.keys() if isinstance(job[key], dict)}
    return {**parent, **job, **tables}


def _lines(script: Any, filled: dict[str, Any]) -> Iterator[str]:
    for entry in script:
        if isinstance(entry, Reference):
            yield from _lines(filled[entry[0]][entry[1]], filled)
        elif isinstance(entry, list):
            yield from _lines(entry, filled)
        else:
            yield entry


INPUTS: list[dict[str, Any]] = [
    {"tags": ["npu"], "publish-tags": ["docker"]},
    {
        "name": "gpu", "key": "gpu", "tags": ["gpu", "big"], "publish-tags": ["docker"], "stage": "perf", "device": "cuda",
        "setup": ['echo "a: b"', "source env.sh"], "fail-on": "never", "baseline": False, "weekly": False,
    },
]  # fmt: skip


@pytest.mark.parametrize("given", INPUTS, ids=["defaults", "everything"])
def test_template__filled_in__is_valid_for_the_vendored_schema(tmp_path: Path, given: dict[str, Any]) -> None:
    file = tmp_path / "expanded.yml"
    file.write_text(json.dumps({"stages": ["test", "perf", "deploy"], **expanded(**given)}), encoding="utf-8")
    _check(file)


def test_own_pipeline__includes_the_template_with_inputs_it_has() -> None:
    _check(OWN)
    (include,) = yaml.safe_load(OWN.read_text(encoding="utf-8"))["include"]
    assert include["local"] == "templates/perfgate.yml"
    jobs = expanded(**include["inputs"])
    assert set(jobs) == ALL
    assert (ROOT / include["inputs"]["directory"] / "perfgate.toml").is_file()


def _check(file: Path) -> None:
    assert_valid("vendor.gitlab-ci", file)


def test_template__inputs__are_described_and_used_and_name_no_package_that_nobody_owns() -> None:
    inputs, body = documents()
    assert all(one["description"] for one in inputs.values())
    assert [name for name, one in inputs.items() if "default" not in one] == ["package"]
    assert {name for name in inputs if f"inputs.{name} ]]" not in TEMPLATE.read_text(encoding="utf-8")} == set()
    for one in (one for name, one in inputs.items() if name != "package"):
        kinds = {"array": list, "boolean": bool}
        assert isinstance(one["default"], kinds.get(one.get("type", ""), str))
        assert one["default"] in one.get("options", [one["default"]])
        assert re.search(one.get("regex", ""), str(one["default"]))
    assert body


def test_template__jobs__are_these_and_the_token_is_in_five_of_them() -> None:
    jobs = expanded()
    assert set(jobs) == ALL
    environments = {name: job["environment"]["name"] for name, job in jobs.items() if "environment" in job}
    assert environments == TRUSTED
    # PERFGATE_TOKEN is given by environment: no job passes it on, and those without one do not name it.
    assert all("PERFGATE_TOKEN" not in json.dumps(jobs[name]) for name in {*UNTRUSTED, PLAN})
    assert all("PERFGATE_TOKEN" not in job["variables"] for job in jobs.values())


@pytest.mark.parametrize(("token", "code"), [("", 80), ("glpat-x", 0)])
@pytest.mark.parametrize("name", ["perfgate-baseline", "perfgate-command", "perfgate-weekly"])
def test_job_of_the_default_branch__no_token_yet__warns_and_does_not_fail(name: str, token: str, code: int) -> None:
    guard = expanded()[name]["script"][0]
    done = subprocess.run(["sh", "-c", guard], env={"PERFGATE_TOKEN": token}, capture_output=True, check=False)
    assert (done.returncode, b"no PERFGATE_TOKEN" in done.stdout) == (code, code != 0)


@pytest.mark.parametrize("name", sorted({*TRUSTED, PLAN}))
def test_job_with_a_token_or_before_it__runs_nothing_but_perfgate(name: str) -> None:
    job = expanded(setup=["of-the-change"], python="of-the-change-too")[name]
    assert job["inherit"] == {"default": False, "variables": False}
    assert job["after_script"] == []
    # No clone of the change; the artifact is read by perfgate alone.
    assert job["variables"]["GIT_STRATEGY"] == "none"
    script = "\n".join([*job["before_script"], *job["script"]])
    assert "of-the-change" not in script
    assert "GATE_PYTHON" not in script
    assert re.findall(r"^gate (\w+(?: \w+)?)|set -- (\w+)", script, flags=re.MULTILINE)
    assert all(line.startswith("python3 -I") for line in job["before_script"] if line.startswith("python3"))


@pytest.mark.parametrize("name", sorted(UNTRUSTED))
def test_job_without_a_token__has_no_environment_and_one_at_a_time(name: str) -> None:
    job = expanded()[name]
    assert "environment" not in job
    assert job["resource_group"] == "perfgate"
    assert job["variables"]["GIT_DEPTH"] == "0"
    assert job["artifacts"]["when"] == "always"


def test_template__scripts__take_nothing_that_a_change_names() -> None:
    inputs, body = documents()
    text = json.dumps(body)
    for name in ("TITLE", "DESCRIPTION", "BRANCH_NAME", "COMMIT_MESSAGE", "COMMIT_REF_NAME", "COMMIT_TAG", "LABELS"):
        assert f"_{name}" not in text.replace("CI_COMMIT_BRANCH", "")
    # Inputs reach scripts as variables; only the lines of the set-up are code.
    for job in body.values():
        for line in [*job.get("before_script", []), *job.get("script", [])]:
            assert isinstance(line, Reference) or INPUT.sub("", line) == line or line == "$[[ inputs.setup ]]"
    assert inputs["setup"]["type"] == "array"


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.parametrize("name", sorted(ALL))
def test_job__script__is_one_that_the_shell_reads(name: str, shell: str) -> None:
    job = expanded()[name]
    script = "\n".join([*job.get("before_script", []), *job["script"]])
    done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_job__perfgate_commands__are_ones_with_these_options() -> None:
    text = "\n".join(line for job in expanded().values() for line in job["script"]).replace("\\\n", "")
    found = re.findall(r"(?:gate|set --|-m perfgate) ([a-z]+(?: record)?) ([^\n|]*)", text)
    assert {command for command, _ in found} == {
        "check", "run", "plan", "report", "publish", "baseline record", "command", "trend", "bisect"
    }  # fmt: skip
    for command, rest in found:
        group, _, member = command.partition(" ")
        known = cli.get_command(None, group)  # type: ignore[arg-type]
        known = known.commands[member] if member else known  # type: ignore[union-attr]
        options = {name for parameter in known.params for name in parameter.opts}  # type: ignore[union-attr]
        assert set(re.findall(r"--[a-z-]+", rest)) <= options, (command, rest)


@pytest.mark.parametrize(
    ("fail_on", "codes"),
    [
        ("undecided", {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5}),
        ("regression", {0: 0, 1: 1, 2: 2, 3: 80, 4: 80, 5: 5}),
        ("never", {0: 0, 1: 80, 2: 2, 3: 80, 4: 80, 5: 5}),
    ],
)
def test_verdict__exit_code__fails_or_warns_as_the_input_says(fail_on: str, codes: dict[int, int]) -> None:
    job = expanded(**{"fail-on": fail_on})["perfgate-publish"]
    assert job["allow_failure"] == {"exit_codes": 80}
    for code, expected in codes.items():
        script = f"GATE_FAIL_ON={job['variables']['GATE_FAIL_ON']}\ncode={code}\n{job['script'][-1]}"
        assert subprocess.run(["sh", "-c", script], capture_output=True, check=False).returncode == expected
