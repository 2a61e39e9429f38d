"""`perfgate init` and the real `perfgate publish` on the forges of this package, in processes of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fake_dialects import GitCodeDialect, GiteaDialect, GiteeDialect

from perfgate.document.files import read_run, write_document
from perfgate.judging.forge.comment import marker, read_state
from tests.end_to_end.conftest import Perfgate
from tests.end_to_end.given import Given, given_job
from tests.end_to_end.publishing import Project


@pytest.fixture
def job(
    request: pytest.FixtureRequest, tmp_path: Path, project: Project
) -> Iterator[Given]:
    with given_job(
        getattr(request, "param", GitCodeDialect)(), tmp_path, project
    ) as job:
        yield job


@pytest.mark.parametrize(
    "job", [GitCodeDialect, GiteaDialect, GiteeDialect], indirect=True
)
def test_publish__event_by_variables__comment_and_status(job: Given) -> None:
    done = job.publish(job.measure(123, ops=64), 123)
    assert done.returncode == 1, done.stderr
    (body,) = job.comments()
    state = read_state(body)
    assert body.splitlines()[0] == marker("default")
    assert state is not None
    assert (state.run, state.attempt, state.head, state.verdict) == (
        123,
        1,
        job.project.head,
        "FAIL",
    )
    if job.host in ("gitcode", "gitee"):
        assert done.stdout.count("cannot set a commit status") == 1
        assert (
            "refused" not in body
        )  # there is no older status that could mislead a reader
    else:
        assert [(status.sha, status.state) for status in job.fake.statuses] == [
            (job.project.head, "failure")
        ]


def test_publish__base_that_is_not_of_main__is_not_believed_where_only_the_clone_can_tell(
    job: Given,
) -> None:
    folder = job.measure(123)
    path = folder / "base" / "run.json"
    run = read_run(path)
    write_document(
        path,
        msgspec.structs.replace(
            run, source=msgspec.structs.replace(run.source, commit=job.project.newer)
        ),
    )
    assert job.publish(folder, 123).returncode == 3
    assert "INCONCLUSIVE" in job.comments()[0]


@pytest.mark.parametrize(
    "forge", ["gitcode", pytest.param("gitea", marks=pytest.mark.slow)]
)
def test_init__forge_without_a_ci_file_of_ours__variables_and_commands_that_perfgate_takes(
    tmp_path: Path,
    perfgate: Perfgate,
    forge: str,
) -> None:
    empty = tmp_path / "model"
    subprocess.run(
        ["git", "init", "-q", "-b", "main", str(empty)],
        env=perfgate.environment,
        check=True,
    )
    done = perfgate("init", f"--{forge}", "--package", "perfgate", cwd=empty)
    assert done.returncode == 0, done.stderr
    written = sorted(
        str(path.relative_to(empty))
        for path in empty.rglob("*")
        if not {".git", ".perfgate"} & set(path.parts)
    )
    assert written == ["perf", "perf/workload.py", "perfgate.toml"]
    lines = done.stdout.partition("Add to the job that builds a pull request:\n")[
        2
    ].partition("\nNext:")[0]
    # What these lines tell perfgate is what it reads: as a shell runs them, up to the first command.
    variables = lines.partition("\n# The job on the measuring machine")[0]
    shown = subprocess.run(
        ["bash", "-c", f"{variables}\nenv"],
        env=perfgate.environment,
        check=True,
        capture_output=True,
        text=True,
    )
    given = dict(
        line.split("=", 1)
        for line in shown.stdout.splitlines()
        if line.startswith("PERFGATE_")
    )
    assert given["PERFGATE_FORGE"] == forge
    commands = [
        line.split()[1:] for line in lines.splitlines() if line.startswith("perfgate ")
    ]
    assert [command[0] for command in commands] == ["check", "publish"]
    # COMMIT and its like stand for what the CI host says: only that is refused, so nothing is missing from the lines.
    refused = perfgate(*commands[1], cwd=empty, **given)
    assert refused.returncode == 2
    assert (
        "PERFGATE_HEAD_SHA must be a full commit id in lower case, found 'COMMIT'"
        in refused.stderr
    )
