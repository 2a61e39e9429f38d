"""action.yml, the workflows and .gitlab-ci.yml: valid, safe by zizmor, and the script that measures really runs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import site
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from perfgate.flows.publish.trusted import FailOn
from perfgate.toml import tomllib
from tests.ci_schema import assert_valid
from tests.unit.forge.test_gitlab_template import expanded

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
WORKFLOWS = {path.stem: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
ACTION = ROOT / "action.yml"
CI_FILES = [ACTION, *WORKFLOWS.values()]
DEPENDABOT = ROOT / ".github" / "dependabot.yml"


def _run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600, check=False)


def _load(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def _jobs(name: str) -> dict[str, Any]:
    jobs: dict[str, Any] = _load(WORKFLOWS[name])["jobs"]
    return jobs


def _inputs(name: str) -> Any:
    return _load(WORKFLOWS[name])["on"]["workflow_call"]["inputs"]


def _steps(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every step of an action or a workflow."""
    if isinstance(value, dict):
        steps = value.get("steps", [])
        # An input is called so too: its value is a mapping.
        yield from steps if isinstance(steps, list) else []
        for member in value.values():
            yield from _steps(member)


def _uses(value: Any) -> Iterator[str]:
    """Yield every action and workflow that is used."""
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from _uses(member)
    if isinstance(value, dict) and isinstance(value.get("uses"), str):
        yield value["uses"]


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("vendor.github-actions", ACTION),
        *[("vendor.github-workflows", path) for path in WORKFLOWS.values()],
        ("vendor.dependabot", DEPENDABOT),
        ("vendor.gitlab-ci", ROOT / ".gitlab-ci.yml"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else "",
)
def test_ci_file__vendored_schema__valid(schema: str, path: Path) -> None:
    assert_valid(schema, path)


def test_ci_files__zizmor_at_its_strictest__finds_nothing() -> None:
    stand_ins = sorted((ROOT / "tests" / "ci" / "actions").glob("*/action.yml"))
    assert len(stand_ins) == 5
    done = _run(BIN / "zizmor", "--offline", "--no-progress", "--persona=auditor", *CI_FILES, DEPENDABOT, *stand_ins)
    assert done.returncode == 0, done.stdout


def test_ci_files__ignored_findings__are_these_alone() -> None:
    found = re.findall(r"zizmor: ignore\[([\w-]+)\]", "".join(path.read_text() for path in CI_FILES))
    assert sorted(found) == [
        "dangerous-triggers", "self-repository", "self-repository", "unpinned-images", "unpinned-images",
    ]  # fmt: skip


@pytest.mark.parametrize("path", CI_FILES, ids=lambda path: path.name)
def test_ci_file__scripts_and_actions__no_expression_inside_and_pinned(path: Path) -> None:
    content = _load(path)
    for step in _steps(content):
        assert "${{" not in step.get("run", "")
    used = list(_uses(content))
    assert used
    for name in used:
        assert name.startswith("./") or re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", name)


def test_ci_files__a_pinned_action__is_the_same_version_everywhere() -> None:
    lines = {
        line.strip("- ")
        for path in CI_FILES
        for line in path.read_text().splitlines()
        if re.match(r" +(- )?uses: \w", line)
    }
    names = [line.partition("@")[0] for line in lines]
    assert len(names) == len(set(names)) == 5
    assert all(re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line) for line in lines)


READ = {"actions": "read", "contents": "read"}
COMMENTS = {"pull-requests": "write", "statuses": "write"}
PERMISSIONS = {
    "gate": {"plan": {"contents": "read"}, "measure": {"contents": "read"}, "publish": {**READ, **COMMENTS}},
    "trusted": {
        "baseline": {"actions": "read", "contents": "write"},
        "record": {"actions": "read", "contents": "write", "pull-requests": "read"},
        "command": {"actions": "read", "contents": "write", "issues": "write", **COMMENTS},
        "measure": {"contents": "read"},
        "publish": {**READ, **COMMENTS},
        "answer": {"contents": "read", "issues": "write", "pull-requests": "write"},
        "weekly": {"contents": "write", "issues": "write"},
    },
    "check": {"check": {"contents": "read"}},
    "release": {
        "build": {"contents": "read"},
        "aarch64": {"contents": "read"},
        "publish": {"id-token": "write"},
        "site": {"contents": "write"},
    },
    "perfgate": {"gate": {**READ, **COMMENTS}},
    "perfgate-trusted": {"trusted": {"actions": "read", "contents": "write", "issues": "write", **COMMENTS}},
}


def test_workflows__permissions__are_these_job_by_job() -> None:
    assert {name: {job: one["permissions"] for job, one in _jobs(name).items()} for name in WORKFLOWS} == PERMISSIONS
    assert all(_load(path)["permissions"] == {} for path in WORKFLOWS.values())


@pytest.mark.parametrize(("caller", "called"), [("perfgate", "gate"), ("perfgate-trusted", "trusted")])
def test_workflow__caller__grants_what_every_job_of_the_called_one_asks_for(caller: str, called: str) -> None:
    (granted,) = PERMISSIONS[caller].values()
    level = {"read": 1, "write": 2}
    for job in PERMISSIONS[called].values():
        assert all(level[right] <= level[granted[name]] for name, right in job.items())


@pytest.mark.parametrize("name", ["gate", "trusted"])
def test_measuring_job__text__names_no_token_and_keeps_no_credentials(name: str) -> None:
    job = _jobs(name)["measure"]
    text = json.dumps(job)
    assert "github.token" not in text
    assert "secrets" not in text
    assert "TOKEN" not in text
    assert job["steps"][0]["with"]["persist-credentials"] is False


@pytest.mark.parametrize("name", ["gate", "trusted"])
def test_job_with_a_token__checkout__is_not_the_change(name: str) -> None:
    revisions = {job: one["steps"][0]["with"].get("ref") for job, one in _jobs(name).items() if job != "measure"}
    assert (
        revisions
        == {
            "gate": {
                "plan": None,
                "publish": "${{ github.event.pull_request.base.sha || github.event.merge_group.base_sha }}",
            },
            "trusted": {
                "baseline": None,
                "record": None,
                "command": None,
                "publish": None,
                "answer": None,
                "weekly": None,
            },
        }[name]
    )


def test_workflows__inputs__are_the_same_and_name_no_package_that_nobody_owns() -> None:
    assert _inputs("trusted") == _inputs("gate")
    assert _inputs("gate")["package"].keys() == {"description", "type", "required"}
    assert all(one["description"] for one in _inputs("gate").values())


@pytest.mark.parametrize("name", ["gate", "trusted"])
def test_container__only_the_measuring_runs_in_it_and_none_is_the_default(name: str) -> None:
    containers = {job: one["container"] for job, one in _jobs(name).items() if "container" in one}
    assert containers == {"measure": "${{ matrix.testbed.container || fromJSON(inputs.container) }}"}
    assert json.loads(_inputs(name)["container"]["default"]) == ""


def test_container__example_of_the_pages__has_what_github_asks_for() -> None:
    page = (ROOT / "docs" / "runner.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    inputs = YAML(typ="safe").load(block)["jobs"]["gate"]["with"]
    assert inputs.keys() <= _inputs("gate").keys()
    container = json.loads(inputs["container"])
    assert container.keys() == {"image", "options", "volumes"}
    assert all(re.fullmatch(r"(/[\w.-]+)+:(/[\w.-]+)+", volume) for volume in container["volumes"])
    assert container["options"].split()[::2] == ["--device"] * 4


def test_testbeds__example_of_the_page__has_what_the_workflows_the_template_and_perfgate_toml_ask_for() -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    (toml,) = re.findall(r"^```toml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    names = list(tomllib.loads(toml)["testbeds"])
    github, gitlab, _ = (
        YAML(typ="safe").load(block)
        for block in re.findall(r"^```yaml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    )
    testbeds = json.loads(github["jobs"]["gate"]["with"]["testbeds"])
    assert [one["name"] for one in testbeds] == names
    for one in testbeds:
        assert one.keys() - {"name"} <= {"runs-on", "container", "setup", "python"}
    includes = [include["inputs"] for include in gitlab["include"]]
    assert [one["testbed"] for one in includes] == names
    assert [one["publish"] for one in includes] == ["none", "none", "all"]
    for one in includes:
        jobs = expanded(**one)
        assert {f"{one['name']}-measure", f"{one['name']}-publish"} <= set(jobs)
        assert jobs[f"{one['name']}-measure"]["variables"]["GATE_OUT"] == f"perfgate-out/{one['testbed']}"
        assert ("needs" in jobs[f"{one['name']}-publish"]) == (one["publish"] != "all")


FIRST_TO_BISECT = (
    "needs.command.outputs.action == 'bisect' && fromJSON(format('[{0}]', toJSON(fromJSON(inputs.testbeds)[0]))) || "
)


@pytest.mark.parametrize(("name", "first"), [("gate", ""), ("trusted", FIRST_TO_BISECT)])
def test_testbeds__default__is_one_machine_whose_artifact_has_the_name_of_the_gate_alone(name: str, first: str) -> None:
    assert json.loads(_inputs(name)["testbeds"]["default"]) == [{"name": ""}]
    job = _jobs(name)["measure"]
    assert job["strategy"] == {
        "fail-fast": False,
        "matrix": {"testbed": f"${{{{ {first}fromJSON(inputs.testbeds) }}}}"},
    }
    assert job["concurrency"]["group"].endswith("-${{ matrix.testbed.name }}")
    assert job["runs-on"] == "${{ matrix.testbed.runs-on || fromJSON(inputs.runs-on) }}"


@pytest.mark.parametrize("name", ["gate", "trusted"])
@pytest.mark.parametrize(("testbeds", "options"), [("", ""), ("910b a3", "--testbed 910b --testbed a3 ")])
def test_publishing_steps__testbeds_of_the_matrix__are_expected(
    tmp_path: Path, name: str, testbeds: str, options: str
) -> None:
    perfgate = tmp_path / "perfgate" / "bin" / "perfgate"
    perfgate.parent.mkdir(parents=True)
    perfgate.write_text('#!/bin/sh\necho "$@" >> "$RUNNER_TEMP/said"\n')
    perfgate.chmod(0o755)
    steps = {step["name"]: step for step in _jobs(name)["publish"]["steps"]}
    for step in ("Judge", "Publish"):
        assert steps[step]["env"]["PERFGATE_TESTBEDS"] == "${{ join(fromJSON(inputs.testbeds).*.name, ' ') }}"
        environ = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "output")}
        script = ["bash", "-e", "-c", steps[step]["run"]]
        subprocess.run(script, env={**environ, "PERFGATE_TESTBEDS": testbeds}, check=True, capture_output=True)
    lines = (tmp_path / "said").read_text().splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"publish --download {options}--key ") for line in lines)


@pytest.mark.parametrize(("testbeds", "keys"), [("", ["default"]), ("910b a3", ["default-910b", "default-a3"])])
def test_baseline_step__testbeds_of_the_matrix__the_run_of_each_is_kept_whatever_became_of_the_others(
    tmp_path: Path, testbeds: str, keys: list[str]
) -> None:
    perfgate = tmp_path / "perfgate" / "bin" / "perfgate"
    perfgate.parent.mkdir(parents=True)
    perfgate.write_text('#!/bin/sh\necho "$@" >> "$RUNNER_TEMP/said"\nexit 2\n')
    perfgate.chmod(0o755)
    step = _jobs("trusted")["baseline"]["steps"][-1]
    environ = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(tmp_path), "PERFGATE_KEY": "default"}
    script = ["bash", "-e", "-c", step["run"]]
    done = subprocess.run(script, env={**environ, "PERFGATE_TESTBEDS": testbeds}, check=False, capture_output=True)
    assert done.returncode == 2
    said = (tmp_path / "said").read_text().splitlines()
    assert [line.split()[4] for line in said] == keys


def test_plan__opted_in__decides_whether_there_is_a_measuring_job_and_never_whether_there_is_a_verdict() -> None:
    jobs = _jobs("gate")
    assert _inputs("gate")["plan"]["default"] is False
    assert jobs["plan"]["if"] == "${{ inputs.plan && github.event_name == 'pull_request' }}"
    measured = "(needs.plan.result == 'skipped' || needs.plan.outputs.measure == 'true')"
    assert jobs["measure"]["if"] == f"${{{{ !cancelled() && {measured} }}}}"
    # A plan that failed, or that found nothing to measure, is published too: the base's rules decide what it means.
    assert "(needs.measure.result != 'skipped' || needs.plan.result != 'skipped')" in jobs["publish"]["if"]
    assert "TOKEN" not in json.dumps(jobs["plan"])
    assert "github.token" not in json.dumps(jobs["plan"])


@pytest.mark.parametrize(
    ("environ", "options"),
    [
        ({}, ""),
        ({"PERFGATE_WORKLOAD": "encoder", "PERFGATE_SKIP_DRAFTS": "true"}, " --workload encoder --skip-drafts"),
        ({"PERFGATE_SKIP_DRAFTS": "false"}, ""),
    ],
)
def test_plan_step__inputs__become_options(tmp_path: Path, environ: dict[str, str], options: str) -> None:
    perfgate = tmp_path / "perfgate" / "bin" / "perfgate"
    perfgate.parent.mkdir(parents=True)
    perfgate.write_text('#!/bin/sh\necho "$@" > "$RUNNER_TEMP/said"\n')
    perfgate.chmod(0o755)
    step = _jobs("gate")["plan"]["steps"][-1]
    plain = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(tmp_path), "PERFGATE_DIRECTORY": "model"}
    subprocess.run(["bash", "-e", "-c", step["run"]], env={**plain, **environ}, check=True, capture_output=True)
    assert (tmp_path / "said").read_text() == f"plan --base HEAD^1 --outputs --directory model{options}\n"


@pytest.mark.parametrize(("is_merged", "base"), [(True, "HEAD^1"), (False, "d" * 40)])
def test_gitlab__merge_train__compared_with_what_it_was_merged_into_or_rebased_on(
    tmp_path: Path, is_merged: bool, base: str
) -> None:
    """A merge train of a project with fast-forward merges has no merge commit: the parent of its head may be the change's."""
    identity = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    _run("git", "init", "--quiet", tmp_path)
    for message in ("main", "first of the change", "second of the change"):
        _run("git", "-C", tmp_path, *identity, "commit", "--quiet", "--allow-empty", "--message", message)
    if is_merged:
        _run("git", "-C", tmp_path, "checkout", "--quiet", "-b", "train", "HEAD~2")
        _run("git", "-C", tmp_path, *identity, "merge", "--quiet", "--no-ff", "--message", "merge", "@{-1}")
    said = tmp_path / "said"
    perfgate = tmp_path / "perfgate"
    perfgate.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    perfgate.chmod(0o755)
    environ = {
        "PATH": os.environ["PATH"],
        "CI_MERGE_REQUEST_IID": "7",
        "CI_MERGE_REQUEST_EVENT_TYPE": "merge_train",
        "CI_MERGE_REQUEST_TARGET_BRANCH_SHA": "d" * 40,
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": "b" * 40,
        "GATE_OUT": "perfgate-out",
    }
    text = (ROOT / "templates" / "perfgate.yml").read_text(encoding="utf-8").replace("!reference", "")
    *_, template = YAML(typ="safe").load_all(text)
    plan, measure = (
        next(
            line for line in template[f"$[[ inputs.name ]]-{job}"]["script"] if f"set -- {command} --base" in str(line)
        )
        for job, command in (("plan", "plan"), ("measure", "check"))
    )
    script = f'project=. perfgate={perfgate}\ngate() {{ $perfgate "$@"; }}\n{plan}\n{measure}'
    subprocess.run(["sh", "-e", "-c", script], cwd=tmp_path, env=environ, check=True, capture_output=True)
    planned, measured, _report = said.read_text().splitlines()
    assert planned == f"plan --base {base}"
    assert measured.startswith(f"-I -m perfgate check --base {base} ")


def _installs() -> list[dict[str, Any]]:
    jobs = [job for name in ("gate", "trusted") for job in _jobs(name).values()]
    return [step for job in jobs for step in job["steps"] if step["name"] == "Install perfgate"]


def test_jobs_with_a_token__installation__is_the_same_and_may_be_another_than_that_of_the_measuring() -> None:
    first, *others = _installs()
    assert len(others) == 7
    assert all(step == first for step in others)
    assert first["env"] == {"PERFGATE_PACKAGE": "${{ inputs.publish-package || inputs.package }}"}


def test_answering_job__artifact_fetched_by_an_action__before_perfgate_is_installed_anew() -> None:
    order = [step["name"] for step in _jobs("trusted")["answer"]["steps"]]
    assert order == ["Check out the default branch", "Get the bisection", "Install perfgate", "Answer"]


@pytest.mark.parametrize("name", ["gate", "trusted"])
def test_publishing_job__artifact_fetched_by_an_action__before_perfgate_is_installed_anew(name: str) -> None:
    # An action expands the change's own archive beside the folder that perfgate is run from.
    order = [step["name"] for step in _jobs(name)["publish"]["steps"]]
    assert order[1:] == [
        "Get the documents",
        "Install perfgate",
        "Judge",
        "Keep the judgement",
        "Keep the report",
        "Publish",
    ]
    assert "venv --clear " in _installs()[0]["run"]


@pytest.mark.slow
def test_jobs_with_a_token__requirements_with_hashes__take_these_very_files_and_nothing_of_the_checkout(
    tmp_path: Path,
) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('the checkout was run')\n")
    wheel = tmp_path / "probe-1.0-py3-none-any.whl"
    _write_wheel(wheel, "PROBE = 1\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tmp_path / "perfgate.lock").write_text(f"{wheel} --hash=sha256:{digest}\n")
    done = _install(tmp_path)
    assert done.returncode == 0, done.stderr
    _write_wheel(wheel, "PROBE = 2\n")
    done = _install(tmp_path)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_jobs_with_a_token__a_commit_of_perfgate__what_it_needs_by_the_hashes_that_lie_in_it(
    forge: str, tmp_path: Path
) -> None:
    wheel, source = tmp_path / "probe-1.0-py3-none-any.whl", tmp_path / "source"
    _write_wheel(wheel, "PROBE = 1\n")
    (source / ".ci").mkdir(parents=True)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (source / ".ci" / "install-requirements.txt").write_text(f"{wheel} --hash=sha256:{digest}\n")
    (source / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n')
    (source / "b.py").write_text(_BACKEND)
    _write_wheel(source / "tool.whl", "TOOL = 1\n", name="tool", needs="probe")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "tool"]):
        _run("git", "-C", source, "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments)
    package = f"git+file://{source}@{_run('git', '-C', source, 'rev-parse', 'HEAD').stdout.strip()}"

    done = _install(tmp_path, package, forge=forge)
    assert done.returncode == 0, done.stderr
    (python,) = tmp_path.glob("temp/*/bin/python")
    assert _run(python, "-c", "import probe, tool; print(probe.PROBE, tool.TOOL)").stdout == "1 1\n"

    _write_wheel(wheel, "PROBE = 2\n")
    done = _install(tmp_path, package, forge=forge)
    assert done.returncode == (4 if forge == "gitlab" else 1)
    assert "DO NOT MATCH THE HASHES" in done.stderr


# Hands out a wheel that was made before: a build that needs nothing.
_BACKEND = """\
import shutil
def build_wheel(folder, config_settings=None, metadata_directory=None):
    shutil.copy("tool.whl", folder + "/tool-1.0-py3-none-any.whl")
    return "tool-1.0-py3-none-any.whl"
"""


def test_hashes__of_what_jobs_with_a_token_install__hold_every_dependency_in_a_version_that_fits() -> None:
    lines = (ROOT / ".ci" / "install-requirements.txt").read_text().replace("\\\n", " ").splitlines()
    pins = [line.split("--hash=sha256:") for line in lines if not line.startswith("#")]
    assert all(hashes and all(re.fullmatch(r"[0-9a-f]{64}\s*", digest) for digest in hashes) for _, *hashes in pins)
    pinned: dict[str, list[str]] = {}
    for text, *_ in pins:
        requirement = Requirement(text.strip())
        pinned.setdefault(canonicalize_name(requirement.name), []).append(str(requirement.specifier)[2:])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    waiting = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    seen: set[str] = set()
    while waiting:
        needed = Requirement(waiting.pop())
        name = canonicalize_name(needed.name)
        assert any(needed.specifier.contains(version) for version in pinned.get(name, [])), needed
        if name not in seen and not (needed.marker and not needed.marker.evaluate()):
            seen.add(name)
            others = map(Requirement, _needs(name))
            waiting += [f"{one.name}{one.specifier}" for one in others if one.marker is None]


def _needs(name: str) -> list[str]:
    try:
        return importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return []  # what only builds is not installed here


def _install(
    checkout: Path, package: str = "-rperfgate.lock", *, forge: str = "github"
) -> subprocess.CompletedProcess[str]:
    """Run the step that installs perfgate as the runner does, without any index."""
    temp = checkout / "temp"
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(checkout), "RUNNER_TEMP": str(temp), "PIP_NO_INDEX": "1",
        "PERFGATE_PACKAGE": package, "GATE_PACKAGE": package, "work": str(temp),
    }  # fmt: skip
    script = _installs()[0]["run"]
    if forge == "gitlab":
        lines = expanded()["perfgate-publish"]["before_script"]
        made, install = (line for line in lines if "venv" in line and "gate()" not in line)
        script = f'rm -rf "$work"; mkdir "$work"; {made}\n{install}'
    command = ["bash" if forge == "github" else "sh", "-e", "-c", script]
    return subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, timeout=600, check=False)


def _write_wheel(path: Path, code: str, *, name: str = "probe", needs: str = "") -> None:
    about = f"{name}-1.0.dist-info"
    needed = f"Requires-Dist: {needs}\n" if needs else ""
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", code)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needed}")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", f"{name}.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n")


def test_own_pipelines__check__run_make_check_on_the_oldest_and_the_newest_that_is_promised() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    oldest = re.search(r'requires-python = ">=([\d.]+)"', project)
    assert oldest is not None
    github = _load(ROOT / ".github" / "workflows" / "check.yml")["jobs"]["check"]
    gitlab = _load(ROOT / ".gitlab-ci.yml")["check"]
    versions = [row["python"] for row in github["strategy"]["matrix"]["include"]]
    assert versions == [row["PYTHON"] for row in gitlab["parallel"]["matrix"]] == [oldest[1], "3.13"]
    (torch,) = re.findall(r'^cpu = \["torch>=([\d.]+)"\]', project, re.MULTILINE)
    for text in (github["steps"][-1]["run"], " ".join(gitlab["script"]) + gitlab["parallel"]["matrix"][0]["OPTIONS"]):
        assert "make check" in text
        assert f"CONSTRAINTS=build/oldest.txt TORCH=torch=={torch}" in text


def test_oldest__every_dependency_of_the_project__at_its_lower_bound() -> None:
    printed = subprocess.run(
        [sys.executable, ROOT / ".ci" / "oldest.py"], capture_output=True, text=True, check=True
    ).stdout
    project = (ROOT / "pyproject.toml").read_text()
    lines = printed.splitlines()
    assert {"click==8.1", "torch==2.7", "numpy==1.22"} <= set(lines)
    assert all(f'"{line.replace("==", ">=")}' in project for line in lines)
    of_a_user = project[project.index("\ndependencies = [") : project.index("\n# The load generator")]
    assert len(lines) == len(re.findall(r"^\s*\"|\[\"", of_a_user, re.MULTILINE))


def test_own_workflows__inputs__are_the_same() -> None:
    assert _jobs("perfgate")["gate"]["with"] == _jobs("perfgate-trusted")["trusted"]["with"]


def _measuring(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps from the measuring on, with what differs by design taken out: where the inputs come from."""
    start = [step["name"] for step in steps].index("Get the earlier attempt")
    text = json.dumps(steps[start:]).replace("${{ inputs.out }}", "perfgate-out")
    ordered = "${{ github.event_name == 'issue_comment' && needs.command.outputs."
    text = text.replace(ordered + "workload || inputs.workload }}", "${{ inputs.workload }}")
    # A workflow has a matrix of machines, each with settings of its own; to the action a machine is an input.
    text = text.replace("matrix.testbed.name", "inputs.testbed")
    for setting in ("setup", "python"):
        text = text.replace(f"matrix.testbed.{setting} || ", "")
    queued = "github.event.merge_group.base_sha }}"
    # Only the workflow that obeys comments bisects.
    for output, variable in (("action", "ACTION"), ("metric", "METRIC")):
        text = text.replace(f'"PERFGATE_{variable}": "${{{{ needs.command.outputs.{output} }}}}", ', "")
    for base in ("${{ inputs.base || " + queued, ordered + "base_sha || '' }}", "${{ " + queued):
        text = text.replace(base, "")
    shared: list[dict[str, Any]] = json.loads(text)
    return shared


def test_measuring_steps__action_and_both_workflows__are_the_same() -> None:
    # A reusable workflow cannot use an action of its own repository by a path: `./` is the caller's checkout.
    action = _measuring(_load(ACTION)["runs"]["steps"])
    assert _measuring(_jobs("gate")["measure"]["steps"]) == action
    assert _measuring(_jobs("trusted")["measure"]["steps"]) == action


class Measuring:
    """The steps of action.yml, run with bash as the runner does, and the real perfgate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.steps = {step["name"]: step for step in _load(ACTION)["runs"]["steps"]}
        _run("git", "init", "--quiet", folder)

    def run(self, step: str, **environ: str) -> subprocess.CompletedProcess[str]:
        plain = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "RUNNER_TEMP": str(self.folder),
            "GITHUB_OUTPUT": str(self.folder / "output"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
            "GITHUB_EVENT_NAME": "pull_request",
            "PERFGATE_SETUP": "",
            "PERFGATE_PYTHON": sys.executable,
            # It is installed already: pip has nothing to do and asks nobody.
            "PERFGATE_PACKAGE": "perfgate",
            "PERFGATE_DIRECTORY": ".",
            "PERFGATE_BASE": "",
            "PERFGATE_WORKLOAD": "",
            "PERFGATE_OUT": str(self.out),
            "PERFGATE_FAIL_ON": "undecided",
        }
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", self.steps[step]["run"]]
        return subprocess.run(
            command, cwd=self.folder, env={**plain, **environ}, capture_output=True, text=True, timeout=600, check=False
        )

    def outputs(self) -> dict[str, str]:
        """Return the outputs as the runner reads them: one line each, or lines up to a delimiter."""
        found, lines = {}, iter((self.folder / "output").read_text().splitlines())
        for line in lines:
            name, delimited, end = line.partition("<<")
            if not delimited:
                name, _, found[name.partition("=")[0]] = line.partition("=")
                continue
            found[name] = "\n".join(iter(lambda end=end: next(lines), end))
        return found


@pytest.fixture
def measuring(tmp_path: Path) -> Measuring:
    return Measuring(tmp_path)


@pytest.mark.slow
def test_measure__nothing_to_measure__reports_the_exit_code_and_no_verdict(measuring: Measuring) -> None:
    done = measuring.run("Measure")
    assert done.returncode == 0, done.stderr
    outputs = measuring.outputs()
    assert (outputs["exit-code"], outputs["verdict"], outputs["decision"]) == ("2", "", "")
    lines = done.stdout.splitlines()
    word = lines[0].removeprefix("::stop-commands::")
    assert re.fullmatch("[0-9a-f]{32}", word)
    end = lines.index(f"::{word}::")
    assert any("perfgate.toml does not exist" in line for line in lines[1:end])
    assert all(line.startswith("::error title=perfgate::") for line in lines[end + 1 :])


def test_measure__bisection_ordered__its_metric_is_passed_on_and_a_base_without_common_commit_refused(
    measuring: Measuring,
) -> None:
    who = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    for message in ("base", "head"):
        _run("git", "-C", measuring.folder, *who, "commit", "--quiet", "--allow-empty", "--message", message)
    ordered = {"PERFGATE_ACTION": "bisect", "PERFGATE_METRIC": "latency.lwo"}
    done = measuring.run("Measure", **ordered, PERFGATE_BASE="HEAD^1")
    assert measuring.outputs() == {"exit-code": "2", "keep": "true"}
    assert "did you mean 'latency.low'" in done.stdout
    done = measuring.run("Measure", **ordered, PERFGATE_BASE="0" * 40)
    assert "the change has no commit in common with its base" in done.stdout


@pytest.mark.parametrize(("ref", "base"), [("refs/pull/2/merge", "HEAD^1"), ("refs/pull/2/head", "main")])
def test_measure__merge_commit__its_first_parent_is_the_base_only_if_the_forge_made_it(
    ref: str, base: str, measuring: Measuring
) -> None:
    """The branch has merged main: by its first parent alone, its own commits would be judged by nobody."""
    folder = measuring.folder
    # Both files are documentation by name: nothing has to be measured.
    (folder / "perfgate.toml").write_text(
        'workload = "perf/w.py:encoder"\n[paths]\nignore = ["of_main.txt", "of_branch.txt"]\n'
    )
    identity = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")

    def commit(message: str, file: str) -> None:
        (folder / file).write_text(message)
        _run("git", "-C", folder, "add", "perfgate.toml", file)
        _run("git", "-C", folder, *identity, "commit", "--quiet", "--message", message)

    _run("git", "-C", folder, "checkout", "--quiet", "-B", "main")
    commit("base", "of_main.txt")
    _run("git", "-C", folder, "checkout", "--quiet", "-b", "branch")
    commit("the change", "of_branch.txt")
    _run("git", "-C", folder, "checkout", "--quiet", "main")
    commit("main moves on", "of_main.txt")
    _run("git", "-C", folder, "checkout", "--quiet", "branch")
    _run("git", "-C", folder, *identity, "merge", "--quiet", "--no-ff", "--message", "merge main", "main")

    def named(revision: str) -> str:
        return _run("git", "-C", folder, "rev-parse", revision).stdout.strip()

    done = measuring.run("Measure", GITHUB_REF=ref, GITHUB_SHA=named("HEAD"))
    assert measuring.outputs()["verdict"] == "SKIPPED", done.stdout
    decision = json.loads((measuring.out / "decision.json").read_text())
    assert decision["sides"]["base"]["commit"] == named(base)


@pytest.mark.slow
def test_measure__decision_of_an_earlier_job__is_not_taken(measuring: Measuring) -> None:
    measuring.out.mkdir()
    for name in ("decision.json", "comment.md", "run.json"):
        (measuring.out / name).write_text(json.dumps({"verdict": "PASS"}))
    measuring.run("Measure")
    assert measuring.outputs()["verdict"] == ""
    assert list(measuring.out.iterdir()) == []
    assert "PASS" not in (measuring.folder / "summary").read_text()


def test_measure__hostile_inputs__stay_data(measuring: Measuring) -> None:
    names = ["BASE", "WORKLOAD", "DIRECTORY", "OUT"]
    hostile = {
        f"PERFGATE_{name}": f'"; touch {name}; $(touch {name}) `touch {name}`\nverdict=PASS\n::error::{name}'
        for name in names
    }
    done = measuring.run("Measure", **hostile)
    assert done.returncode == 0
    assert not any((measuring.folder / name).exists() for name in names)
    assert measuring.outputs() == {"exit-code": "2"}
    outside = re.sub(r"::stop-commands::(\w+)\n.*?^::\1::\n", "", done.stdout, flags=re.DOTALL | re.MULTILINE)
    assert (outside, done.stderr) == ("", "")


def test_measure__what_the_setup_prints__neither_commands_the_runner_nor_draws(measuring: Measuring) -> None:
    escapes = r"printf '::warning::planted\n\033[2Jover\rwritten\007\n##[error]old\n'"
    done = measuring.run("Measure", PERFGATE_SETUP=f"{escapes}\nfalse\ntouch reached")
    lines = done.stdout.splitlines()
    end = lines.index(f"::{lines[0].removeprefix('::stop-commands::')}::")
    assert lines[1:end] == ["::warning::planted", "[2Joverwritten", "##[error]old"]
    assert lines[end + 1 :] == [
        "::error title=perfgate::the set-up or the installation of perfgate failed; the log of this step says how"
    ]
    assert measuring.outputs() == {"exit-code": "4"}
    assert not (measuring.folder / "reached").exists()


def test_measure__setup__sets_the_environment_not_the_folder_and_says_nothing_to_later_steps(
    measuring: Measuring,
) -> None:
    # BASH_ENV would be run by the bash of the next step, whose exit code is the job's.
    files = {name: str(measuring.folder / name) for name in ("GITHUB_ENV", "GITHUB_PATH")}
    attack = (
        'echo "BASH_ENV=/tmp/x" >> "$GITHUB_ENV"; echo /tmp/x >> "$GITHUB_PATH"; echo PASS >> "$GITHUB_STEP_SUMMARY"'
    )
    # As an environment of CANN or conda does: what comes after it finds another Python.
    setup = f'export PERFGATE_PYTHON={sys.executable}\ncd /\n{attack}; echo "verdict<<x" >> "$GITHUB_OUTPUT"'
    (measuring.folder / "perfgate.toml").write_text("wrong = here\n")
    done = measuring.run("Measure", **files, PERFGATE_PYTHON="no-such-python", PERFGATE_SETUP=setup)
    assert done.returncode == 0, done.stderr
    assert [Path(file).read_text() for file in files.values()] == ["", ""]
    assert measuring.outputs()["exit-code"] == "2"
    assert "PASS" not in (measuring.folder / "summary").read_text()
    assert "perfgate.toml is not valid TOML" in done.stdout


@pytest.mark.parametrize("out", [".git", ".git/results", "../x/.git", "-delete"])
def test_measure__results_beside_credentials__are_refused(measuring: Measuring, out: str) -> None:
    done = measuring.run("Measure", PERFGATE_OUT=out)
    assert done.stdout.startswith("::error title=perfgate::the folder for the results must not lie in .git")
    assert measuring.outputs() == {"exit-code": "2"}


@pytest.mark.slow
def test_measure__link_among_the_results__nothing_is_uploaded(measuring: Measuring) -> None:
    measuring.out.mkdir()
    (measuring.out / "trace-x.json.gz").symlink_to("/etc/hostname")
    done = measuring.run("Measure")
    assert "the results hold a link or a .git" in done.stdout
    assert "keep" not in measuring.outputs()
    uploads = [step for step in measuring.steps.values() if "upload-artifact" in step.get("uses", "")]
    assert len(uploads) == 3
    assert all("steps.perfgate.outputs.keep == 'true'" in step["if"] for step in uploads)


def test_measure__shallow_clone__stops_with_the_remedy(measuring: Measuring, tmp_path: Path) -> None:
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    git = ["git", "-C", origin, "-c", "user.name=a", "-c", "user.email=a@b.example"]
    _run("git", "init", "--quiet", origin)
    for number in range(2):
        _run(*git, "commit", "--quiet", "--allow-empty", "--message", str(number))
    _run("git", "clone", "--quiet", "--depth", "1", f"file://{origin}", clone)
    done = measuring.run("Measure", PERFGATE_DIRECTORY=str(clone))
    assert "fetch-depth: 0" in done.stdout
    assert measuring.outputs() == {"exit-code": "2"}


def test_measure__script__asks_bash_for_nothing_it_cannot_parse(measuring: Measuring) -> None:
    script = measuring.steps["Measure"]["run"]
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.slow
def test_measure__python_that_takes_no_packages__is_seen_and_left_alone(measuring: Measuring) -> None:
    # As a distribution marks its own Python (PEP 668); the one below stands for it, in an environment with a package.
    system = measuring.folder / "system"
    _run(sys.executable, "-m", "venv", "--without-pip", system)
    (site_packages,) = system.glob("lib/python3*/site-packages")
    (site_packages / "of_the_system.py").write_text("WORD = 'seen'\n")
    inherited = "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    (site_packages / "inherited.pth").write_text(inherited)
    before = sorted(site_packages.iterdir())
    site_packages.chmod(0o555)
    probe = measuring.folder / "probe-1.0-py3-none-any.whl"
    _write_wheel(probe, "PROBE = 1\n")
    done = measuring.run("Measure", PERFGATE_PYTHON=str(system / "bin" / "python"), PERFGATE_PACKAGE=str(probe))
    assert measuring.outputs()["exit-code"] == "2", done.stdout
    assert "perfgate.toml does not exist" in done.stdout
    site_packages.chmod(0o755)
    assert sorted(site_packages.iterdir()) == before
    own = measuring.folder / "perfgate-measuring" / "bin" / "python"
    found = _run(
        own, "-I", "-c", "import of_the_system, probe, sys; print(of_the_system.WORD, probe.PROBE, sys.prefix)"
    )
    assert found.stdout.split() == ["seen", "1", str(own.parents[1])]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_measure__checkout_that_another_user_owns__is_read_all_the_same(measuring: Measuring) -> None:
    _run("git", "-C", measuring.folder, "-c", "user.name=a", "-c", "user.email=a@b.example", "commit", "--quiet",
         "--allow-empty", "--message", "x")  # fmt: skip
    for path in (measuring.folder, measuring.folder / ".git"):
        os.chown(path, 12345, 12345)
    refused = subprocess.run(
        ["git", "status"], cwd=measuring.folder, env={"PATH": os.environ["PATH"]}, capture_output=True, check=False
    )
    assert b"dubious ownership" in refused.stderr
    done = measuring.run("Measure", PERFGATE_SETUP="git log --format=%s")
    assert done.stdout.splitlines()[1] == "x"
    assert "dubious ownership" not in done.stdout + done.stderr


FAIL_ON = [
    ("undecided", {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4, "5": 5, "": 5}),
    ("regression", {"0": 0, "1": 1, "2": 2, "3": 0, "4": 0, "5": 5, "": 5}),
    ("never", {"0": 0, "1": 0, "2": 2, "3": 0, "4": 0, "5": 5, "": 5}),
]


@pytest.mark.parametrize(("fail_on", "codes"), FAIL_ON)
def test_verdict_step__exit_code__is_the_jobs_unless_fail_on_lets_it_pass_with_a_warning(
    measuring: Measuring, fail_on: str, codes: dict[str, int]
) -> None:
    for code, expected in codes.items():
        done = measuring.run("Verdict", PERFGATE_EXIT_CODE=code, PERFGATE_FAIL_ON=fail_on)
        assert done.returncode == expected, (fail_on, code)
        is_let_pass = expected == 0 and code != "0"
        assert done.stdout.startswith("::warning title=perfgate::exit code") is is_let_pass


@pytest.mark.parametrize("name", ["gate", "trusted"])
@pytest.mark.parametrize(("fail_on", "codes"), FAIL_ON)
def test_publish_step__exit_code__as_in_the_measuring_job(
    tmp_path: Path, name: str, fail_on: str, codes: dict[str, int]
) -> None:
    publish = next(step for step in _jobs(name)["publish"]["steps"] if step["name"] == "Publish")
    assert publish["env"]["PERFGATE_FAIL_ON"] == "${{ inputs.fail-on }}"
    perfgate = tmp_path / "perfgate" / "bin" / "perfgate"
    perfgate.parent.mkdir(parents=True)
    perfgate.write_text('#!/bin/sh\necho "$@" > "$RUNNER_TEMP/said"\nexit "$CODE"\n')
    perfgate.chmod(0o755)
    for code, expected in codes.items():
        environ = {"PATH": os.environ["PATH"], "RUNNER_TEMP": str(tmp_path), "CODE": code or "5"}
        script = ["bash", "-e", "-c", publish["run"]]
        done = subprocess.run(script, env={**environ, "PERFGATE_FAIL_ON": fail_on}, check=False, capture_output=True)
        assert done.returncode == expected, (fail_on, code)
        assert f"--fail-on {fail_on}" in (tmp_path / "said").read_text()


def test_fail_on__action_workflows_template_and_command__take_the_same_words() -> None:
    words = [fail_on for fail_on, _ in FAIL_ON]
    template = next(YAML(typ="safe").load_all(ROOT / "templates" / "perfgate.yml"))
    assert template["spec"]["inputs"]["fail-on"]["options"] == words
    assert list(get_args(FailOn)) == words
    defaults = {_inputs(name)["fail-on"]["default"] for name in ("gate", "trusted")}
    assert defaults == {_load(ACTION)["inputs"]["fail-on"]["default"]} == {words[0]}


def test_measure__fail_on_misspelt__is_refused(measuring: Measuring) -> None:
    done = measuring.run("Measure", PERFGATE_FAIL_ON="nothing")
    assert "fail-on must be undecided, regression or never, found 'nothing'" in done.stdout
    assert measuring.outputs() == {"exit-code": "2"}


def test_measure__earlier_attempt__only_a_repeated_run_has_one(measuring: Measuring) -> None:
    earlier = measuring.out / "earlier" / "perfgate-default-1"
    earlier.mkdir(parents=True)
    # It is decided before the set-up, whose end is this one's.
    measuring.run("Measure", GITHUB_RUN_ATTEMPT="2", PERFGATE_SETUP="false")
    assert earlier.is_dir()
    measuring.run("Measure", GITHUB_RUN_ATTEMPT="1", PERFGATE_SETUP="false")
    assert not earlier.exists()


def test_baseline_job__run_that_broke_a_rule__is_kept_and_one_of_a_change_is_not() -> None:
    condition = " ".join(_jobs("trusted")["baseline"]["if"].split())
    assert """contains(fromJSON('["success", "failure"]'), github.event.workflow_run.conclusion)""" in condition
    assert "github.event.workflow_run.event == 'push'" in condition
    assert "github.event.workflow_run.head_branch == github.event.repository.default_branch" in condition
