"""Every block of our pages is held against the thing itself: run, parsed, or looked for in the source."""

from __future__ import annotations

import re
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
import yaml

from perfgate.catalogue.lookup import sentences
from perfgate.config import parse_config
from tests.ci_schema import assert_valid
from tests.docs import tables
from tests.docs.blocks import DESK, DOCS, ROOT, Block, pages, read_blocks
from tests.docs.desk import PRE_COMMIT, Desk, Jenkins, Project, Watched
from tests.docs.machine import Machine
from tests.each import each
from tests.source import package_modules, source, text_constants

PAGES = [
    page for page in pages() if not page.endswith(".zh.md")
]  # tests/docs/test_chinese.py, tests/unit/test_readme.py
PROSE = sorted(
    str(path.relative_to(ROOT))
    for folder in (".", "docs", "benchmarks", "examples", "tests")
    for path in (ROOT / folder).glob("*.md" if folder == "." else "**/*.md")
    if not {"data", "golden"} & set(path.parts)
)
BLOCKS = [block for page in PAGES for block in read_blocks(page)]
# A text block that the commands of the block before it must have printed.
OUTPUT = "output"
# The blocks of one setting on a page run in one place, in their order. `PLACE ROLE` is a role of that place.
SETTINGS = {
    DESK: Desk,
    "elsewhere": Desk,
    "project": Project,
    "elsewhere-project": Project,
    "history": Watched,
    "jenkins": Jenkins,
    "service": Machine,
}
# The example that `init` writes is tried on one page. The desks of the others have no such device, which `init` says.
TRIED = "quickstart-github.md"
# Pages whose commands take ten seconds and more together; tests/unit runs the same flows.
LONG_PAGES = {"hook.md", "operate.md", "quickstart-gitlab.md", "rules.md", "store.md", "trend.md"}
# Why a block may stand there without being run. A reason that is not here fails.
NOT_RUN = {
    "needs a PostgreSQL server; tests/unit/store/test_postgres.py starts one",
    "needs a bucket; tests/s3 runs the same on a server of S3",
    "builds an image, which needs podman or docker and a registry",
    "needs the documents of an earlier check and jq",
    "proves the machine in about three minutes; tests/end_to_end/test_doctor.py runs it",
    "gates for minutes; tests/end_to_end/test_bisect.py runs the same in a separate repository",
    "gates for minutes; tests/end_to_end/test_upgrade_bisect.py runs the same on separate environments",
    "serves until it is interrupted; tests/unit/cli/test_serve.py and tests/unit/service run the same",
    "installs packages and gates for minutes; tests/end_to_end/test_upgrade_bisect.py runs the same on separate wheels",
    "installs from a repository",
    "installs from a package index; tests/journeys installs the wheel with its extras",
    "measures for half an hour; tests/unit/store/test_sizing.py runs it with a few runs",
    "runs for a comment alone; the tests of perfgate-forges run the same in a process",
    "needs a cluster; tests/cluster starts Slurm and runs what Kubernetes would",
    "needs stored runs of main; tests/unit/service/test_ask.py asks every question",
    "needs a mail server and eight stored versions of main; tests/unit/report/test_trend.py reads the file",
    "measures the whole checklist; tests/unit/trend/test_uplifts.py has such a commit",
}


def of_language(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def test_blocks__all_of_them__are_of_a_kind_that_something_checks() -> None:
    kinds = {"sh", "yaml", "toml", "python", "text"}
    assert [block.name for block in BLOCKS if block.language not in kinds] == []
    assert [block.name for block in BLOCKS if block.setting.split()[0] not in {*SETTINGS, OUTPUT}] == []
    assert {block.not_run for block in BLOCKS if block.not_run} == NOT_RUN
    assert len(of_language("sh")) > 10


def _run_page(page: str, folder: Path, *, slow: bool) -> None:
    """Run the shell blocks of a page in their order, those of one setting in one place."""
    with ExitStack() as stack:
        places: dict[str, Desk] = {}
        output = ""
        for block in (block for block in of_language("sh", "text") if block.page == page and not block.not_run):
            if block.setting == OUTPUT:
                assert all(line in output for line in block.text.splitlines()), f"{block.name} is not in:\n{output}"
            if block.language != "sh" or (block.is_slow and not slow):
                continue
            name, _, role = block.setting.partition(" ")
            if name not in places:
                (folder / name).mkdir()
                places[name] = SETTINGS[name](folder / name)
                stack.callback(places[name].close)
                if name in (DESK, "elsewhere") and page != TRIED and not slow:
                    places[name].environment["PERFGATE_DEVICE"] = "npu"
            process = getattr(places[name], role or "run")(block.text)
            output = process.stdout
            assert process.returncode in block.exit_codes, f"{block.name} ended with {process.returncode}:\n{output}"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page in LONG_PAGES else ())
        for page in sorted({block.page for block in of_language("sh")})
    ],
)
def test_shell_blocks__of_a_page__do_what_the_page_says(tmp_path: Path, page: str) -> None:
    _run_page(page, tmp_path, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({block.page for block in of_language("sh") if block.is_slow}))
def test_shell_blocks__of_a_page_that_measures__do_what_the_page_says(tmp_path: Path, page: str) -> None:
    _run_page(page, tmp_path, slow=True)


@pytest.mark.parametrize("block", of_language("yaml"), ids=lambda block: block.name)
def test_yaml_blocks__fit_the_schema_of_their_host(tmp_path: Path, block: Block) -> None:
    file = tmp_path / "block.yml"
    file.write_text(block.text, encoding="utf-8")
    if re.search(r"^repos:", block.text, flags=re.MULTILINE):
        # Of pre-commit, which the desk runs with this very text.
        assert block.text.partition("\n")[2] == PRE_COMMIT
        return
    is_github = re.search(r"^(on|runs):", block.text, flags=re.MULTILINE)
    assert_valid("vendor.github-workflows" if is_github else "vendor.gitlab-ci", file)


@each("block", of_language("toml"))
def test_toml_blocks__are_accepted(block: Block) -> None:
    has_workload = re.search(r"^\[?workload", block.text, flags=re.MULTILINE)
    workload = "" if has_workload else 'workload = "perf/workload.py:example"\n'
    parse_config(workload + block.text, ROOT / "perfgate.toml")


@each("block", [block for block in of_language("text") if block.setting != OUTPUT])
def test_text_blocks__are_words_of_ours(block: Block) -> None:
    """`…` stands for what differs from case to case."""
    for line in block.text.splitlines():
        for part in (part.strip() for part in line.split("…")):
            assert len(part) < 12 or is_ours(part), f"{block.name}: nothing of ours says {part!r}"
        assert any(len(part.strip()) >= 12 for part in line.split("…")), (
            f"{block.name}: {line!r} says too little to be looked for"
        )


def is_ours(text: str) -> bool:
    """Whether a text constant of the package, a sentence of its catalogue or a template holds the text."""
    # The modules with its first words come first, so that few need to be parsed.
    modules = sorted(package_modules(), key=lambda path: (text not in source(path), text[:12] not in source(path)))
    return any(text in words for words in words_elsewhere()) or any(
        text in words for path in modules for words in text_constants(path)
    )


@cache
def words_elsewhere() -> list[str]:
    templates = (ROOT / "perfgate").rglob("*.j2")
    return [*sentences(), *(re.sub(r"{{.*?}}", "…", path.read_text(encoding="utf-8")) for path in templates)]


@each("page", PROSE)
def test_links__of_a_page__lead_to_files_and_headings(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", without_code(text)):
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), f"{page}: {target}"
        if heading:
            assert heading in headings(file), f"{page}: {file.name} has no heading for #{heading}"


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def headings(file: Path) -> set[str]:
    """The anchors that forges make of a page's headings."""
    lines = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def test_index__of_the_pages__names_every_one() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\((\S+?\.md)\)", index))
    # A page in Chinese is linked from its English one, which test_chinese.py holds it against.
    translated = {page for page in pages() if page.endswith(".zh.md")} - {"README.zh.md"}
    assert {page for page in named if "/" not in page} == set(pages()) - {"index.md"} - translated


@each("block", of_language("python"))
def test_python_blocks__are_python(block: Block) -> None:
    compile(block.text, block.name, "exec")


def test_comments__files_they_name__are_there() -> None:
    """Of everything that is read by others than Python: a path from the root, or of the folder that the file lies in."""
    files = [
        *(ROOT / ".github").rglob("*.yml"),
        *(ROOT / "templates").glob("*.yml"),
        *(ROOT / "perfgate" / "starter").glob("*.j2"),
        *(
            ROOT / name
            for name in (".gitlab-ci.yml", ".pre-commit-hooks.yaml", "action.yml", "Makefile", "pyproject.toml")
        ),
    ]
    paths = [
        (file, path)
        for file in files
        for comment in re.findall(r"(?:^|\s)#(.*)", file.read_text(encoding="utf-8"))
        for path in re.findall(r"[\w.-]+(?:/[\w.-]+)*\.(?:md|py|ya?ml|toml)\b", _from_the_root(comment))
    ]
    # Comments name files of the user too.
    missing = [
        f"{file.relative_to(ROOT)}: {path}"
        for file, path in paths
        if path not in ("perfgate.toml", ".pre-commit-config.yaml")
        and not (ROOT / path).exists()
        and not (file.parent / path).exists()
    ]
    assert missing == []
    assert len(paths) > 15


def _from_the_root(comment: str) -> str:
    """A comment whose paths in our repository are paths from its root."""
    return comment.replace("OWNER/perfgate/", "")


def test_permissions__the_tables__say_what_the_workflows_say() -> None:
    """Each job of the two workflows, with its rights, in one row of docs/permissions.md; and no other row."""
    page = (DOCS / "permissions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+\.yml) \| (\w+) \| ([^|]+) \|", page, flags=re.MULTILINE)
    documented = {
        (workflow, job): dict(entry.split(": ") for entry in rights.split(", ")) for workflow, job, rights in rows
    }
    granted = {}
    for workflow in ("gate.yml", "trusted.yml"):
        text = (ROOT / ".github" / "workflows" / workflow).read_text(encoding="utf-8")
        granted.update({(workflow, name): job["permissions"] for name, job in yaml.safe_load(text)["jobs"].items()})
    assert documented == granted


@pytest.mark.parametrize("page", tables.PAGES)
def test_tables__of_a_page__are_what_schema_and_catalogue_say(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == tables.page(page), "run `make pages`"


def test_architecture__its_table__names_every_folder_of_the_package() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    folders = {path.name for path in (ROOT / "perfgate").iterdir() if path.is_dir() and not path.name.startswith("__")}
    assert set(re.findall(r"`perfgate/(\w+)`", page)) == folders


def test_architecture__the_way_of_a_number__names_modules_and_functions_that_are_there() -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## One number")[2].partition("\n## ")[0]
    rows = [re.findall(r"`([^`]+)`", row) for row in re.findall(r"^\|[^|]*\|([^|]*)\|", section, flags=re.MULTILINE)]
    parents = [ROOT / "perfgate", ROOT / "perfgate" / "judging", ROOT / "perfgate" / "judging" / "gate"]
    for row in filter(None, rows):
        files = [path for name in row for parent in parents if (path := parent / name).is_file()]
        assert len(files) == sum(name.endswith(".py") for name in row), row
        text = "".join(path.read_text(encoding="utf-8") for path in files)
        for name in row:
            assert name.endswith(".py") or f"def {name.rpartition('.')[2]}(" in text, name
    assert len(list(filter(None, rows))) == 9


def test_architecture__its_picture__names_parts_that_are_there() -> None:
    picture = (DOCS / "images" / "architecture.svg").read_text(encoding="utf-8")
    parts = set(re.findall(r'<text class="name"[^>]*>(\w+)</text>', picture))
    folders = {path.name for path in (ROOT / "perfgate").rglob("*") if path.is_dir()}
    assert parts - folders == set()
    assert len(parts) == 8


def test_contributing__paths_in_its_tables__are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = [
        path
        for row in re.findall(r"^\|(.*)\|$", text, flags=re.MULTILINE)
        for path in re.findall(r"`([\w./-]+/[\w./-]*)`", row)
        if not re.search(r"NAME|KIND|NN|AREA", path)
    ]
    assert [path for path in paths if not (ROOT / path).exists() and not (ROOT / "perfgate" / path).exists()] == []
    assert len(paths) > 30
