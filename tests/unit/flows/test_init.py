"""`perfgate init` in real repositories; what perfgate was installed from is what a record of pip says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from perfgate.cli.main import cli
from perfgate.config import load_config, parse_config
from perfgate.errors import RepositoryError, SetUpError, UsageError
from perfgate.flows.init.init import start_project
from perfgate.flows.init.inputs import Forge, InitOptions
from tests.ci_schema import assert_valid
from tests.fakes.package_index import installed_wheels, offline, write_wheel
from tests.installed import from_git, write_distribution, write_installation

ROOT = Path(__file__).resolve().parents[3]
PIN = "a" * 40
ACTION = f"tools/perfgate@{PIN}"
GITHUB = (
    "perfgate.toml",
    "perf/workload.py",
    ".github/workflows/perfgate.yml",
    ".github/workflows/perfgate-trusted.yml",
    "perf/requirements.txt",
)
# How CI installs without a lock file: to resolve one takes most of a second.
SETUP = "pip install ."


def unlocked(**options: Any) -> InitOptions:
    return InitOptions(setup=SETUP, **options)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in offline().items():
        monkeypatch.setenv(name, value)


def git(folder: Path, *arguments: str) -> str:
    who = {f"GIT_{role}_{what}": "someone" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    clean = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    environment = {**os.environ, **who, **clean}
    done = subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "model"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    return root


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A clone of perfgate whose commit its origin has too."""
    root = tmp_path / "perfgate"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "--allow-empty", "-qm", "a commit")
    git(root, "remote", "add", "origin", "https://token@github.com/someone/perfgate.git")
    git(root, "update-ref", "refs/remotes/origin/main", "HEAD")
    return root


def files(root: Path) -> set[str]:
    found = (path.relative_to(root) for path in root.rglob("*"))
    return {str(path) for path in found if path.parts[0] != ".git"}


def load_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def init(root: Path, *arguments: str) -> Result:
    """Run the command. A workload is tried on a bench, which takes seconds; a program (``--job command``) is not."""
    return CliRunner().invoke(cli, ["init", "-C", str(root), *arguments], catch_exceptions=False)


def test_init__first_commit_made__every_file_what_it_needs_at_one_version_and_the_next_step(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "pyproject.toml").write_text('[project]\nname = "ranker"\ndependencies = ["numpy"]\n')
    git(project, "add", "--all")
    git(project, "commit", "-qm", "first")
    monkeypatch.chdir(project)
    done = init(project, "--github", "--action", ACTION)
    assert done.exit_code == 0
    assert {name for name in files(project) if (project / name).is_file()} == {*GITHUB, "pyproject.toml"}
    assert "pip install -r perf/requirements.txt" in (project / GITHUB[2]).read_text()
    installed = (project / "perf" / "requirements.txt").read_text()
    assert "\nnumpy==" in installed
    assert "\ntorch==" in installed
    assert [line for line in done.output.splitlines() if line.startswith("wrote")] == [
        f"wrote {name}" for name in GITHUB
    ]
    assert "\ntested: the workload loads, runs and passes its check here\n" in done.output
    assert f"git add {' '.join(GITHUB)}\n" in done.output
    assert "perfgate local" in done.output


def test_init__repository_without_a_commit__the_next_step_is_one(project: Path) -> None:
    done = init(project, "--github", "--action", ACTION, "--job", "command", "--setup", SETUP)
    next_steps = done.output.partition("Next:\n")[2].splitlines()
    assert next_steps[0].strip() == f"git -C {project} add . && git -C {project} commit"
    assert next_steps[2].strip() == f"perfgate local -C {project}"


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_init__every_file_that_it_writes__at_most_a_hundred_lines_together(project: Path, forge: Any) -> None:
    (project / "lib" / "shop_ranker").mkdir(parents=True)
    (project / "lib" / "shop_ranker" / "__init__.py").touch()
    (project / "pyproject.toml").write_text('[project]\nname = "shop-ranker"\n')
    started = start_project(project, unlocked(forge=forge, action=ACTION, branch="develop"))
    assert sum(len((project / name).read_text().splitlines()) for name in started.files) <= 100
    assert all(len(line) <= 140 for line in (project / "perf" / "workload.py").read_text().splitlines())


@pytest.mark.parametrize("device", ["cpu", "cuda", "npu"])
def test_init__perfgate_toml__is_accepted_as_it_is(project: Path, device: str) -> None:
    start_project(project, unlocked(forge="github", action=ACTION, device=device))
    path = project / "perfgate.toml"
    plain = parse_config(path.read_text(), path)
    assert (plain.device, plain.store.path, plain.project) == (device, "branch://perfgate-data", "model")
    assert [reference.text for reference in plain.references] == ["perf/workload.py:example"]
    assert (plain.store.main_branch, plain.measure.python_path) == ("", [".", "src"])


@pytest.mark.parametrize("device", ["cpu", "cuda", "npu"])
@pytest.mark.parametrize(("kind", "file"), [("command", "bench.py"), ("ranks", "train.py"), ("server", "serve.py")])
def test_init__job__its_settings_are_accepted_and_name_the_file(
    project: Path, kind: Any, file: str, device: Any
) -> None:
    started = start_project(project, unlocked(forge="github", action=ACTION, branch="main", job=kind, device=device))
    (job,) = load_config(project).jobs
    assert (job.kind, f"perf/{file}" in job.settings.line) == (kind, True)
    assert f"perf/{file}" in started.files
    text = (project / "perf" / file).read_text()
    compile(text, file, "exec")
    if kind == "ranks":
        assert {"cpu": '"gloo"', "cuda": '"nccl"', "npu": '"hccl"'}[device] in text


def test_init__workload__is_python_that_names_what_perfgate_needs(project: Path) -> None:
    start_project(project, unlocked(forge="github", action=ACTION))
    text = (project / "perf" / "workload.py").read_text()
    compile(text, "workload.py", "exec")
    assert "YOUR MODEL: import it instead, as in `from mymodel import Encoder`" in text


@pytest.mark.parametrize("existing", GITHUB)
def test_init__a_file_is_there__all_named_and_nothing_written(project: Path, existing: str) -> None:
    (project / existing).parent.mkdir(parents=True, exist_ok=True)
    (project / existing).write_text("mine")
    before = files(project)
    with pytest.raises(UsageError, match=f"nothing was written, because {re.escape(existing)} would be overwritten"):
        start_project(project, InitOptions(forge="github", action=ACTION))
    assert files(project) == before
    assert (project / existing).read_text() == "mine"


def test_init__run_twice__names_all_files_and_the_way_out(project: Path) -> None:
    start_project(project, InitOptions(forge="github", action=ACTION))
    with pytest.raises(UsageError, match="--ci-only writes the CI files alone") as refusal:
        start_project(project, InitOptions(forge="github", action=ACTION))
    assert all(name in str(refusal.value) for name in GITHUB[:4])


def test_init__a_dangling_link_in_the_way__not_written_through(project: Path, tmp_path: Path) -> None:
    (project / "perfgate.toml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"perfgate\.toml would be overwritten"):
        start_project(project, InitOptions(forge="github", action=ACTION))
    assert not (tmp_path / "elsewhere").exists()


def test_init__a_file_cannot_be_written__what_was_written_is_taken_away(project: Path) -> None:
    (project / ".github").write_text("a file where a folder must be")
    with pytest.raises(UsageError, match="nothing was kept"):
        start_project(project, unlocked(forge="github", action=ACTION))
    assert files(project) == {".github"}


def test_init__local_then_ci_only__all_that_a_change_request_needs_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(project, "commit", "--allow-empty", "-qm", "first")
    git(project, "remote", "add", "origin", "git@github.com:team/model.git")
    monkeypatch.chdir(project)
    start_project(project, InitOptions(local=True), trial=lambda: ["torch"])
    assert files(project) == {"perfgate.toml", "perf", "perf/workload.py"}
    done = init(project, "--ci-only", "--action", ACTION, "--publish-on", "self-hosted,plain")
    (line,) = (line.split() for line in done.output.splitlines() if line.strip().startswith("git add"))
    assert set(line[2:]) == set(GITHUB)
    assert '[store]\npath = "branch://perfgate-data"' in done.output
    assert "an example until your own" not in done.output
    for name in GITHUB[2:4]:
        (job,) = load_yaml(project / name)["jobs"].values()
        assert job["with"]["publish-on"] == '["self-hosted", "plain"]'


def test_init__lock__that_file_alone_and_none_of_the_user_s(project: Path) -> None:
    start_project(project, InitOptions(forge="github", action=ACTION), trial=lambda: ["torch"])
    lock = project / "perf" / "requirements.txt"
    written = lock.read_text()
    lock.write_text(written.partition("torch")[0])
    done = init(project, "--lock", "--job", "command")
    assert lock.read_text() == written
    assert [line for line in done.output.splitlines() if line.startswith("wrote")] == ["wrote perf/requirements.txt"]
    lock.write_text("mine==1\n")
    with pytest.raises(UsageError, match="not a file that `perfgate init` has written"):
        init(project, "--lock", "--job", "command")


def test_init__torch_with_cuda_for_a_runner_without__says_how_ci_gets_the_other_build(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(tmp_path / "wheels", "nvidia-cudnn-cu12", "9.1")
    write_wheel(tmp_path / "wheels", "torch", "2.9.1", "nvidia-cudnn-cu12")
    for name, value in offline(installed_wheels(), tmp_path / "wheels").items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(write_distribution(tmp_path / "installed", "torch", "2.9.1", "nvidia-cudnn-cu12"))
    done = init(project, "--ci-only", "--github", "--action", ACTION)
    assert "torch is a CUDA build here" in done.output
    assert "nvidia-cudnn-cu12==9.1 " in (project / "perf" / "requirements.txt").read_text()


def test_init__submodules_and_large_files__the_inputs_that_fill_them(project: Path) -> None:
    (project / ".gitmodules").write_text('[submodule "third"]\n\tpath = third\n\turl = ../third\n')
    (project / ".gitattributes").write_text("*.pt filter=lfs -text\n")
    git(project, "add", ".gitattributes")
    start_project(project, unlocked(forge="github", action=ACTION))
    for name in GITHUB[2:4]:
        (job,) = load_yaml(project / name)["jobs"].values()
        assert (job["with"]["submodules"], job["with"]["lfs"]) == ("recursive", True)
    start_project(project, unlocked(forge="gitlab", action=ACTION, ci_only=True))
    (include,) = load_yaml(project / ".gitlab-ci.yml")["include"]
    assert include["inputs"]["submodules"] == "recursive"
    assert "lfs" not in include["inputs"]


def test_init__ci_only__leaves_the_configuration_alone(project: Path) -> None:
    (project / "perfgate.toml").write_text('workload = "perf/mine.py:mine"\n')
    started = start_project(project, InitOptions(forge="github", action=ACTION, ci_only=True))
    assert tuple(started.files) == GITHUB[2:]


def test_init__workload_of_the_project_does_not_load__said_and_nothing_written(project: Path) -> None:
    (project / "perfgate.toml").write_text('workload = "perf/mine.py:mine"\n')
    before = files(project)
    with pytest.raises(SetUpError, match=r"'mine' cannot be loaded: workload file perf/mine\.py does not exist"):
        init(project, "--github", "--action", ACTION, "--ci-only")
    assert files(project) == before


def test_init__workload_imports_what_ci_cannot_install__refused_and_nothing_written(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_distribution(tmp_path / "packages", "odd", "1.0+mine")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    before = files(project)
    with pytest.raises(UsageError, match=r"uv cannot pin .*odd==1\.0\+mine"):
        start_project(project, InitOptions(forge="github", action=ACTION), trial=lambda: ["torch", "odd"])
    assert files(project) == before
    assert start_project(project, InitOptions(forge="github", action=ACTION), trial=lambda: ["torch"]).files


@pytest.mark.parametrize(
    ("origin", "forge"),
    [
        ("https://github.com/team/model.git", "github"),
        ("git@github.example.com:team/model.git", "github"),
        ("ssh://git@gitlab.example.com:2222/team/model.git", "gitlab"),
        ("https://gitee.com/ascend/model", "gitee"),
        ("git@gitcode.com:ascend/model.git", "gitcode"),
        ("https://token@atomgit.com/ascend/model", "gitcode"),
        ("https://codeberg.org/github/gitlab", "gitea"),
    ],
)
def test_init__no_forge_named__the_host_of_origin_says_it(project: Path, origin: str, forge: str) -> None:
    git(project, "remote", "add", "origin", origin)
    assert start_project(project, unlocked(action=ACTION)).forge == forge


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        ("https://git.example.com/github/model", r"\(git.example.com\) is unknown; name it"),
        ("/srv/git/github/model.git", r"\(a path\) is unknown; name it"),
    ],
)
def test_init__a_forge_that_cannot_be_known__what_local_needs_and_the_reason(
    project: Path, origin: str, words: str
) -> None:
    git(project, "remote", "add", "origin", origin)
    with pytest.raises(UsageError, match=words + ".* --github, --gitlab, --gitee, --gitcode or --gitea"):
        start_project(project, InitOptions(action=ACTION, ci_only=True))
    assert files(project) == set()
    started = start_project(project, InitOptions(action=ACTION))
    assert re.search(words, started.missing)
    assert files(project) == {"perfgate.toml", "perf", "perf/workload.py"}


def test_init__no_remote__what_local_needs_and_the_ci_files_later(project: Path) -> None:
    started = start_project(project, unlocked())
    assert (started.forge, files(project)) == (None, {"perfgate.toml", "perf", "perf/workload.py"})
    assert load_config(project).references[0].name == "example"
    with pytest.raises(UsageError, match="no remote `origin` with a known forge"):
        start_project(project, unlocked(ci_only=True))
    start_project(project, unlocked(forge="github", action=ACTION, ci_only=True))
    assert {".github/workflows/perfgate.yml", ".github/workflows/perfgate-trusted.yml"} < files(project)


@pytest.mark.parametrize("options", [{"ci_only": True}, {"forge": "github"}])
def test_init__local_and_ci_files__refused(project: Path, options: Any) -> None:
    with pytest.raises(UsageError, match="--local writes no CI files"):
        start_project(project, InitOptions(local=True, **options))
    assert files(project) == set()


def test_init__folder_with_a_name_in_latin_1__a_project_of_that_name(project: Path) -> None:
    folder = project / os.fsdecode("größe".encode("latin-1"))
    folder.mkdir()
    start_project(folder, InitOptions(local=True))
    assert load_config(folder).project == "gr??e"


def test_init__no_repository__said(tmp_path: Path) -> None:
    with pytest.raises(RepositoryError, match="git"):
        start_project(tmp_path, InitOptions(forge="github", action=ACTION))


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, direct_url: Any) -> None:
    monkeypatch.syspath_prepend(write_installation(folder / "installed", direct_url))


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/someone/perfgate.git",
        "ssh://git@github.com/someone/perfgate",
        "git@GitHub.com:someone/perfgate.git",
    ],
)
def test_init__installed_from_git__ci_runs_that_commit(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    install(monkeypatch, tmp_path, from_git(url, PIN))
    start_project(project, unlocked(forge="github"))
    text = (project / GITHUB[2]).read_text()
    assert f"uses: someone/perfgate/.github/workflows/gate.yml@{PIN}\n" in text
    assert f"package: git+https://github.com/someone/perfgate@{PIN}\n" in text


@pytest.mark.parametrize("editable", [True, False])
def test_init__installed_from_a_clone__ci_runs_its_commit_and_no_token_is_written(
    project: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editable: bool
) -> None:
    install(monkeypatch, tmp_path, {"url": source.as_uri(), "dir_info": {"editable": editable}})
    start_project(project, unlocked(forge="gitlab"))
    commit = git(source, "rev-parse", "HEAD")
    (include,) = load_yaml(project / ".gitlab-ci.yml")["include"]
    assert include["remote"] == f"https://raw.githubusercontent.com/someone/perfgate/{commit}/templates/perfgate.yml"
    assert include["inputs"]["package"] == f"git+https://github.com/someone/perfgate@{commit}"


def test_init__clone_with_a_commit_that_was_not_pushed__asks_for_it_and_writes_nothing(
    project: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(source, "commit", "--allow-empty", "-qm", "mine alone")
    install(monkeypatch, tmp_path, {"url": source.as_uri(), "dir_info": {"editable": True}})
    with pytest.raises(
        UsageError, match="in no branch of its origin: push it, or name the commit that CI shall run: --action"
    ):
        start_project(project, InitOptions(forge="github"))
    assert files(project) == set()


@pytest.mark.parametrize(
    ("direct_url", "words"),
    [
        (None, "was not installed from a repository"),
        ({"url": "https://x.example/perfgate.whl", "archive_info": {}}, "was not installed from a repository"),
        ({"url": "file:///nowhere/perfgate", "dir_info": {}}, "which is gone"),
        (from_git("file:///srv/perfgate.git", PIN), "which is on no server"),
        (from_git("https://git.example.com/tools/perfgate", PIN), "whose files github.com does not call"),
    ],
)
def test_init__a_commit_that_ci_cannot_get__asks_for_one_and_names_nobody_s_package(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct_url: Any, words: str
) -> None:
    install(monkeypatch, tmp_path, direct_url)
    with pytest.raises(UsageError, match=f"{words}, so name the commit that CI shall run: --action OWNER/REPO@COMMIT"):
        start_project(project, InitOptions(forge="github"))
    assert files(project) == set()


def test_init__installed_from_a_directory_that_is_no_clone__asked(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path, {"url": tmp_path.as_uri(), "dir_info": {}})
    with pytest.raises(UsageError, match="is not a clone of a server's repository"):
        start_project(project, InitOptions(forge="gitlab"))


def test_init__clone_whose_origin_is_a_path__names_it_and_gives_the_option_that_works(
    project: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(source, "remote", "set-url", "origin", str(tmp_path))
    install(monkeypatch, tmp_path, {"url": source.as_uri(), "dir_info": {}})
    with pytest.raises(UsageError) as refused:
        start_project(project, unlocked(forge="github"))
    assert f"installed from {source}, whose origin '{tmp_path}' is on no server" in str(refused.value)
    (option,) = re.findall(r"--action OWNER/REPO@([0-9a-f]{40})", str(refused.value))
    assert option == git(source, "rev-parse", "HEAD")
    start_project(project, unlocked(forge="github", action=f"OWNER/REPO@{option}"))
    assert option in (project / GITHUB[2]).read_text()


@pytest.mark.parametrize(
    "wrong", ["tools/perfgate", "tools/perfgate@main", f"tools@{PIN}", f"a/b@{PIN[:-1]}", f"a/b@{PIN}\n"]
)
def test_init__an_action_that_is_no_commit__refused(project: Path, wrong: str) -> None:
    with pytest.raises(UsageError, match="must read OWNER/REPO@COMMIT"):
        start_project(project, InitOptions(forge="github", action=wrong))


def test_init__action_and_package__those_of_the_own_server(project: Path) -> None:
    git(project, "remote", "add", "origin", "git@github.example.com:team/model.git")
    wheel = "https://files.example.com/perfgate-0.1.0-py3-none-any.whl"
    start_project(project, unlocked(action=ACTION))
    assert f"package: git+https://github.example.com/tools/perfgate@{PIN}\n" in (project / GITHUB[2]).read_text()
    shutil.rmtree(project / ".github")
    start_project(project, unlocked(action=ACTION, package=wheel, ci_only=True))
    assert f"package: {wheel}\n" in (project / GITHUB[2]).read_text()


def test_init__image__the_container_sees_the_devices(project: Path) -> None:
    start_project(project, InitOptions(forge="github", action=ACTION, device="npu", image="cann:8.2"))
    container = json.loads(load_yaml(project / GITHUB[2])["jobs"]["gate"]["with"]["container"])
    assert container["image"] == "cann:8.2"
    assert "--device /dev/davinci_manager" in container["options"]
    assert "/usr/local/bin/npu-smi:/usr/local/bin/npu-smi" in container["volumes"]


@pytest.mark.parametrize(
    ("python", "inputs"),
    [
        ("3.11", {"python-version": "3.11"}),
        ("3.11.4", {"python-version": "3.11.4"}),
        ("/opt/python/bin/python3", {"python": "/opt/python/bin/python3"}),
    ],
)
def test_init__python__a_version_is_installed_and_an_interpreter_taken(
    project: Path, python: str, inputs: dict[str, str]
) -> None:
    start_project(project, unlocked(forge="github", action=ACTION, labels=["self-hosted"], python=python))
    given = load_yaml(project / GITHUB[2])["jobs"]["gate"]["with"]
    assert {name: value for name, value in given.items() if name.startswith("python")} == inputs


@pytest.mark.parametrize("python", ["3", "3.x", "2.7", "3.11-slim"])
def test_init__python_that_is_neither_a_version_nor_an_interpreter__refused(project: Path, python: str) -> None:
    with pytest.raises(UsageError, match=r"--python must be a version such as 3\.11"):
        start_project(project, unlocked(forge="github", action=ACTION, python=python))
    assert files(project) == set()


@pytest.mark.parametrize(("branch", "told"), [("trunk", ""), ("develop", "develop")])
def test_init__another_main_branch__known_before_the_first_commit(tmp_path: Path, branch: str, told: str) -> None:
    root = tmp_path / "model"
    root.mkdir()
    git(root, "init", "-q", "-b", branch)
    start_project(root, unlocked(forge="github", action=ACTION))
    assert f"branches: [{branch}]" in (root / GITHUB[2]).read_text()
    # perfgate looks for main, master and trunk by itself; any other must be told.
    assert parse_config((root / "perfgate.toml").read_text(), root / "perfgate.toml").store.main_branch == told


def test_init__trunk_while_another_branch_is_checked_out__found(project: Path) -> None:
    git(project, "checkout", "-qb", "trunk")
    git(project, "commit", "--allow-empty", "-qm", "first")
    git(project, "checkout", "-qb", "add-perfgate")
    start_project(project, unlocked(forge="github", action=ACTION))
    assert "branches: [trunk]" in (project / GITHUB[2]).read_text()


def test_init__a_project_in_a_folder__workflows_at_the_root_that_name_it(project: Path) -> None:
    folder = project / "models" / "encoder"
    folder.mkdir(parents=True)
    started = start_project(folder, unlocked(forge="github", action=ACTION))
    assert started.files[0] == "models/encoder/perfgate.toml"
    assert "directory: models/encoder" in (project / GITHUB[2]).read_text()


def test_init__the_workflows_called__have_these_inputs_and_need_no_other_rights(project: Path) -> None:
    (project / "requirements.txt").write_text("torch\n")
    folder = project / "sub"
    folder.mkdir()
    for python in ("3.11", "/opt/conda/bin/python"):
        options = InitOptions(forge="github", action=ACTION, labels=("self-hosted", "npu"), python=python, setup="true")
        start_project(folder, options)
        for file, callee in zip(GITHUB[2:4], ("gate.yml", "trusted.yml")):
            (job,) = load_yaml(project / file)["jobs"].values()
            called = load_yaml(ROOT / ".github" / "workflows" / callee)
            assert job["uses"] == f"tools/perfgate/.github/workflows/{callee}@{PIN}"
            assert set(job["with"]) <= set(called[True]["workflow_call"]["inputs"])  # YAML 1.1 reads `on` as true
            assert job["with"]["directory"] == "sub"
            wanted = [item for each in called["jobs"].values() for item in each.get("permissions", {}).items()]
            levels = {name: "write" if (name, "write") in wanted else "read" for name, _ in wanted}
            assert job["permissions"] == levels
        shutil.rmtree(project / ".github")
        shutil.rmtree(folder)
        folder.mkdir()


def test_init__github_files__clean_by_schema_and_by_zizmor_at_its_strictest(project: Path) -> None:
    start_project(project, InitOptions(forge="github", action=ACTION, setup="echo 'it''s' # fine: \\\"yes\""))
    workflows = [project / name for name in GITHUB[2:4]]
    assert_valid("vendor.github-workflows", *workflows)
    zizmor = [Path(sys.executable).with_name("zizmor"), "--offline", "--no-progress", "--persona=auditor"]
    done = subprocess.run([*zizmor, *workflows], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert load_yaml(project / GITHUB[2])["jobs"]["gate"]["with"]["setup"] == "echo 'it''s' # fine: \\\"yes\""


GITLAB = [
    InitOptions(forge="gitlab", action=ACTION),
    InitOptions(forge="gitlab", action=ACTION, python="3.10", setup="pip install -r 'a b.txt' # why"),
    InitOptions(forge="gitlab", action=ACTION, device="npu", python="/opt/conda/bin/python3"),
]


@pytest.mark.parametrize("options", GITLAB)
def test_init__gitlab__an_include_with_inputs_that_the_template_has(project: Path, options: InitOptions) -> None:
    started = start_project(project, options)
    assert ".gitlab-ci.yml" in started.files
    file = project / ".gitlab-ci.yml"
    assert_valid("vendor.gitlab-ci", file)
    (include,) = load_yaml(file)["include"]
    spec, _ = (ROOT / "templates" / "perfgate.yml").read_text(encoding="utf-8").split("\n---\n")
    known = yaml.safe_load(spec)["spec"]["inputs"]
    for name, value in include["inputs"].items():
        assert isinstance(value, list) == (known[name].get("type") == "array"), name
    lines = [line for line in file.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert len(lines) <= 20


def test_init__gitlab__the_inputs_are_those_asked_for(project: Path) -> None:
    def written(options: InitOptions) -> Any:
        start_project(project, options)
        (include,) = load_yaml(project / ".gitlab-ci.yml")["include"]
        shutil.rmtree(project / "perf")
        (project / "perfgate.toml").unlink()
        (project / ".gitlab-ci.yml").unlink()
        return include

    first, second, third = map(written, GITLAB)
    assert (first["project"], first["ref"], first["file"]) == ("tools/perfgate", PIN, "/templates/perfgate.yml")
    package = f"git+https://gitlab.com/tools/perfgate@{PIN}"
    assert first["inputs"]["image"] == f"python:3.{sys.version_info.minor}"
    assert second["inputs"] == {
        "image": "python:3.10", "setup": ["pip install -r 'a b.txt' # why"], "package": package, "fail-on": "never",
    }  # fmt: skip
    assert third["inputs"] == {
        "tags": ["npu"], "python": "/opt/conda/bin/python3", "package": package, "fail-on": "never",
    }  # fmt: skip


def test_init__a_pipeline_is_there__left_as_it_is_and_the_lines_printed(project: Path) -> None:
    (project / ".gitlab-ci.yml").write_text("test: {script: [make test]}\n")
    done = init(project, "--gitlab", "--action", ACTION, "--job", "command", "--setup", SETUP)
    assert done.exit_code == 0
    assert (project / ".gitlab-ci.yml").read_text() == "test: {script: [make test]}\n"
    assert ".gitlab-ci.yml exists and was not changed. Add to it:" in done.output
    assert f"ref: {PIN}" in done.output
    assert (project / "perfgate.toml").exists()


PYPROJECT = """
[project]
name = "shop-ranker"
requires-python = ">=3.10"
dependencies = ["numpy>=1.22", "Jinja2", "tomli; python_version < '3.0'"]
"""


@pytest.mark.parametrize(
    ("place", "python_path", "imported"),
    [
        ("shop_ranker/__init__.py", [".", "src"], "shop_ranker"),
        ("src/shop_ranker/__init__.py", [".", "src"], "shop_ranker"),
        ("src/ranker/__init__.py", [".", "src"], "ranker"),
        ("python/shop_ranker/__init__.py", [".", "python"], "shop_ranker"),
        ("lib/shop_ranker.py", [".", "lib"], "shop_ranker"),
    ],
)
def test_init__package__found_wherever_it_lies(
    project: Path, place: str, python_path: list[str], imported: str
) -> None:
    (project / "pyproject.toml").write_text(PYPROJECT)
    (project / place).parent.mkdir(parents=True)
    (project / place).touch()
    start_project(project, unlocked(forge="github", action=ACTION))
    toml = parse_config((project / "perfgate.toml").read_text(), project / "perfgate.toml")
    assert toml.measure.python_path == python_path
    assert f"`from {imported} import Encoder`" in (project / "perf" / "workload.py").read_text()


def test_init__requires_python__another_than_the_running_one(project: Path) -> None:
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "a"\nrequires-python = "!=3.{sys.version_info.minor}.*"\n'
    )
    start_project(project, unlocked(forge="github", action=ACTION))
    assert load_yaml(project / GITHUB[2])["jobs"]["gate"]["with"]["python-version"] == "3.10"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('dependencies = ["no-such-package-here>=1"]', "uv cannot pin .*no-such-package-here was not found.*--setup"),
        ('dependencies = ["not a requirement"]', "'not a requirement' cannot be read.*--setup"),
        ('requires-python = "<3"', "requires-python = '<3' takes no Python that perfgate runs on"),
        ("requires-python = [", r"pyproject\.toml cannot be read: .*; repair it"),
    ],
)
def test_init__pyproject_that_gives_no_version__said_and_nothing_written(
    project: Path, text: str, message: str
) -> None:
    (project / "pyproject.toml").write_text(f'[project]\nname = "a"\n{text}\n')
    with pytest.raises(UsageError, match=message):
        start_project(project, InitOptions(forge="github", action=ACTION))
    assert files(project) == {"pyproject.toml"}


@pytest.mark.parametrize(
    ("arguments", "runs_on"),
    [
        ((), '"ubuntu-latest"'),
        (("--device", "npu"), '["self-hosted", "npu"]'),
        (("--device", "npu", "--runs-on", "910b, rack-2,"), '["910b", "rack-2"]'),
    ],
)
def test_init__labels__the_measuring_job_goes_there(project: Path, arguments: tuple[str, ...], runs_on: str) -> None:
    assert (
        init(project, "--github", "--action", ACTION, "--job", "command", "--setup", SETUP, *arguments).exit_code == 0
    )
    for name in GITHUB[2:4]:
        (job,) = load_yaml(project / name)["jobs"].values()
        assert job["with"]["runs-on"] == runs_on


def test_init__another_forge__the_lines_of_both_jobs_and_no_invented_file(project: Path) -> None:
    done = init(project, "--gitee", "--branch", "it's main", "--package", "perf gate.whl", "--job", "command")
    assert done.exit_code == 0, done.output
    assert set(files(project)) == {"perfgate.toml", "perf", "perf/bench.py"}
    (lines,) = re.findall(r"# Variables of both jobs.*(?=\n\nNext:)", done.output, flags=re.DOTALL)
    checked = subprocess.run(["bash", "-n"], input=lines, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "export PERFGATE_FORGE=gitee\n" in lines
    assert """perfgate check --base 'origin/it'"'"'s main' --out perfgate-out\n""" in lines
    assert lines.count("pip install 'perf gate.whl' perfgate-forges\n") == 2
    assert "perfgate publish perfgate-out" in lines


@pytest.mark.parametrize(
    ("origin", "name"),
    [("git@github.com:team/encoder.git", "encoder"), ("https://gitlab.com/a/b/encoder/", "encoder"), ("", "model")],
)
def test_init__project__named_as_on_the_forge_wherever_the_clone_lies(project: Path, origin: str, name: str) -> None:
    if origin:
        git(project, "remote", "add", "origin", origin)
    start_project(project, unlocked(forge="github", action=ACTION))
    assert parse_config((project / "perfgate.toml").read_text(), project / "perfgate.toml").project == name


def test_init__a_file_is_there__said_before_the_commit_is_asked_for(project: Path) -> None:
    (project / "perfgate.toml").write_text("mine")
    with pytest.raises(UsageError, match="would be overwritten"):
        start_project(project, InitOptions(forge="github", action="-not-even-an-action"))


@pytest.mark.parametrize("options", [{"setup": "one\ntwo"}, {"python": "py\tthon"}, {"labels": ["npu\u202e"]}])
def test_init__more_than_a_line__refused(project: Path, options: Any) -> None:
    with pytest.raises(UsageError, match="must be one line without control characters"):
        start_project(project, InitOptions(forge="github", action=ACTION, **options))


def test_init__another_branch_than_perfgate_would_find__told_in_perfgate_toml(project: Path) -> None:
    git(project, "commit", "--allow-empty", "-qm", "first")
    git(project, "branch", "master")
    start_project(project, unlocked(forge="github", action=ACTION, branch="master"))
    assert (
        parse_config((project / "perfgate.toml").read_text(), project / "perfgate.toml").store.main_branch == "master"
    )


@pytest.mark.parametrize("forge", ["github", "gitlab"])
def test_init__ci_files__report_and_block_nothing_and_say_how_to_change_that(project: Path, forge: Forge) -> None:
    started = start_project(project, unlocked(forge=forge, action=ACTION, ci_only=True))
    for file in started.files:
        text = (project / file).read_text()
        assert "fail-on: never\n" in text
        assert "never is advisory and blocks nothing" in text
        assert re.search(r"\b20 (gates|merge requests).*write regression.*so that FAIL blocks", text)
    assert len(started.files) == (2 if forge == "github" else 1)
