"""Every command that perfgate prints: in comments, on the terminal, in errors, advice and reports, and in the prose of docs/.

Fenced blocks of docs/ are run by test_docs.py, the templates in perfgate/starter by tests/ci.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from perfgate.cli import commands
from perfgate.plugins import member_names
from perfgate.toml import tomllib
from tests.docs.blocks import DOCS, ROOT
from tests.source import nodes, package_modules, source

_NAMES = "|".join(name.replace("_", "-") for name in member_names(commands))
_SUBCOMMANDS = (
    "accept|accepted|cache|copy|diff|gaps|list|prune|push|ranks|record|reduce|requests|steps|top|triage|triaged"
)
_QUOTED = re.compile(r"`((?:perfgate|git|pip) [^`\n]+)`")
# Outside quotes a command is what reads like one: its name, a subcommand, options with their values.
_BARE = re.compile(
    rf"(?<![\w`/.-])(perfgate (?:{_NAMES})(?: (?:{_SUBCOMMANDS}))?"
    r"(?: --[a-z][a-z-]*(?:[= ](?:[A-Z][A-Z/]*|\{[\w{}]*))?)*)(?![\w-])"
)
_ORDER = re.compile(r"(/perfgate (?:run|bisect|accept)[^`\n|]*)`")
# What a module without a command does not contain: most need not be parsed; and what a line of each text with one does.
_MAY_PRINT = re.compile(r"perfgate |`git |`pip ")
_PROGRAM = re.compile(r"perfgate|`git|`pip")
_COMMIT = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{9,40}\b")
_ACCEPTED = re.compile(r"(?<=baseline accept )(?:[a-z_]+\.[\w.@*/:]+ ?)+")

# What is executed for a printed command, in a fresh clone of a branch whose check has failed (`desk.Checked`); None where it is
# executed as it stands. Capital words stand for what the reader knows: `Checked.words` gives the clone's.
RUN: dict[str, str | None] = {
    "git log --all": None,
    "git push": None,
    "git push --no-verify": None,
    "perfgate advise": None,
    "perfgate advise --measured": None,
    "perfgate baseline accept": "perfgate baseline accept latency.low --reason meant",
    "perfgate baseline accept METRIC --commit COMMIT --reason TEXT": None,
    'perfgate baseline accept METRIC --reason "the new layer"': None,
    "perfgate baseline accept 1 --commit COMMIT --reason TEXT": None,
    'perfgate baseline accept 1 --reason "the new layer"': None,
    "perfgate baseline list": None,
    "perfgate baseline prune": "perfgate baseline prune --keep 2",
    "perfgate baseline triage": "perfgate baseline triage HEAD acknowledged --reason meant",
    "perfgate baseline triage COMMIT new": None,
    "perfgate baseline prune --keep N": None,
    "perfgate baseline record --run FILE": "perfgate baseline record --allow-dirty --run FILE",
    "perfgate config": None,
    "perfgate explain": "perfgate explain WORD",
    "perfgate explain --list": None,
    "perfgate explain 4": None,
    "perfgate explain 7": None,
    "perfgate explain 7 --lang zh": None,
    "perfgate explain NAME": None,
    "perfgate explain WORD": None,
    "perfgate gate": "perfgate gate perfgate-out",
    "perfgate gate --base main --head change --out decision": "perfgate gate --base RUN --head RUN --out decision",
    "perfgate gate --head RUN": None,
    "perfgate gate --head run": "perfgate gate --head RUN",
    "perfgate gate perfgate-out --lang zh --out perfgate-out": None,
    "perfgate init": "perfgate init --ci-only --github",
    "perfgate init --job server": "perfgate init --job server --github -C EMPTY",
    "perfgate init --ci-only --github": "perfgate init --ci-only --gitlab -C EMPTY",
    "perfgate plan": None,
    "perfgate publish": "perfgate publish perfgate-out",
    "perfgate publish perfgate-out": None,
    "perfgate publish --out judged": "perfgate publish perfgate-out --out judged",
    "perfgate report": "perfgate report --csv numbers.csv perfgate-out",
    "perfgate report --csv": "perfgate report --csv numbers.csv perfgate-out",
    "perfgate report --csv numbers.csv perfgate-out": None,
    "perfgate run --from-profile": "perfgate run --from-profile REC --out run",
    "perfgate run --from-profile DIR --out main": "perfgate run --from-profile REC --out main",
    "perfgate run --from-profile DIR --out run": "perfgate run --from-profile REC --out run",
    "perfgate run --from-profile FOLDER": "perfgate run --from-profile REC",
    "perfgate store copy": "perfgate store copy branch://perfgate-data copied.db",
    "perfgate store export": "perfgate store export --out exported",
    "perfgate store verify": None,
    "perfgate token create": "perfgate token create NAME --scope write --store tokens.db",
    "perfgate token list": "perfgate token list --store tokens.db",
    "perfgate trace diff": "perfgate trace diff REC REC",
    "perfgate trace diff BASE HEAD": "perfgate trace diff REC REC",
    "perfgate trace flame REC [--head REC]": "perfgate trace flame REC --head REC",
    "perfgate trace gaps": "perfgate trace gaps REC",
    "perfgate trace gaps REC": None,
    "perfgate trace ranks": "perfgate trace ranks DIR",
    "perfgate trace ranks DIR... [--out FILE]": "perfgate trace ranks DIR --out ranks.html",
    "perfgate trace reduce": "perfgate trace reduce DIR",
    "perfgate trace reduce DIR...": "perfgate trace reduce DIR",
    "perfgate trace requests": "perfgate trace requests REC",
    "perfgate trace requests REC [--id ID]": "perfgate trace requests REC",
    "perfgate trace steps REC": None,
    "perfgate trace timeline REC": None,
    "perfgate trace REC": None,
    "perfgate trace ranks --json": "perfgate trace ranks DIR --json",
    "perfgate trace top": "perfgate trace top REC",
    "perfgate trace top REC": None,
    "perfgate trace … --json": "perfgate trace top REC --json",
    "perfgate site": "perfgate site --runs 2 --out pages",
    "perfgate site --out DIR": "perfgate site --runs 2 --out pages",
    "perfgate trend": None,
    "perfgate trend --email weekly.html": None,
    "perfgate trend --fail-on-regression": None,
    "perfgate config --format json": None,
    "perfgate run --steps 1": "perfgate run --quick --steps 1",
    "perfgate report --csv -": "perfgate report --csv - perfgate-out",
}
# The same for what measures: many seconds each.
MEASURE: dict[str, str | None] = {
    "perfgate check": "perfgate check --steps 4",
    "perfgate check --append": "perfgate check --append --steps 4",
    "perfgate check --steps 9": "perfgate check --steps 4",
    "perfgate check --base {} --out": "perfgate check --base BASE --out perfgate-out --steps 4",
    "perfgate check --base-python PATH --head-python PATH": "perfgate check --base-python PATH --head-python PATH --steps 4",
    "perfgate local": "perfgate local --steps 4",
    "perfgate local --always": "perfgate local --always --steps 4",
    "perfgate local --base COMMIT": "perfgate local --base BASE --steps 4",
    "perfgate local --base {}": "perfgate local --base BASE --steps 4",
    "perfgate local --workload {}": "perfgate local --workload small --steps 4",
    "perfgate run": "perfgate run --quick --steps 4",
    "perfgate run --quick": "perfgate run --quick --steps 4",
    "perfgate run --quick --steps 1,4": None,
    "perfgate run --steps 19": "perfgate run --quick --steps 19",
    "perfgate run --steps": "perfgate run --quick --steps 4",
    "perfgate run --steps {} --workload {}": "perfgate run --quick --steps 4 --workload small",
}
# What a plain machine cannot run, with the reason. perfgate's own are parsed by its command line all the same.
NOT_RUN: dict[str, str] = {
    "git fetch --unshallow": "needs a shallow clone: test_printed.py runs it in one",
    "git fetch origin MAIN:refs/remotes/origin/MAIN": "needs a clone of one branch: test_printed.py runs it in one",
    "git init": "begins a repository: test_printed.py runs it in an empty folder",
    "perfgate baseline": "a group of commands",
    "perfgate baseline list --limit N": "needs more stored runs than one page: tests/unit/store/test_baseline_command.py",
    "perfgate baseline record": "measures the whole checklist on main: tests/end_to_end/test_branch_store.py",
    "perfgate plan --pending": "sets a commit status from a CI job: tests/end_to_end/test_plan.py",
    "perfgate publish DIR": "joins the checks of a matrix: tests/end_to_end/test_publish_matrix.py",
    "perfgate publish --record": "keeps the verdict of a CI job: tests/end_to_end/test_publish_matrix.py",
    "perfgate publish --testbed NAME": "joins the checks of a matrix: tests/end_to_end/test_publish_matrix.py",
    "perfgate publish --download": "takes an artifact of a CI job: tests/end_to_end/test_publish.py",
    "perfgate baseline remove": "needs the id of a stored run: tests/unit/store/test_token_command.py",
    "perfgate baseline remove ID --project PROJECT --store store.db": "needs such an id, too",
    "perfgate baseline log": "needs a store in a database: tests/unit/store/test_token_command.py",
    "perfgate baseline record --from DIR": "keeps the artifact of a CI job of main: tests/attacks/test_item_10_the_store.py",
    "perfgate baseline record --from": "keeps the artifact of a CI job of main: tests/attacks/test_item_10_the_store.py",
    "perfgate store push": "needs a service: tests/unit/service/test_unsent.py",
    "git bisect run": "gates for minutes: tests/end_to_end/test_bisect.py",
    "git merge-base": "needs two commits of the reader's: tests/unit/flows/test_bisect_commits.py",
    "perfgate bisect": "gates for minutes: tests/end_to_end/test_bisect.py",
    "perfgate bisect latency.p50@encoder/long --good COMMIT --bad COMMIT": "gates for minutes: tests/end_to_end/test_trend.py",
    "perfgate command": "runs for a comment alone: tests/end_to_end/test_command.py",
    "perfgate demo": "two whole gates: tests/end_to_end/test_demo.py",
    "perfgate doctor": "three minutes of gates: tests/end_to_end/test_doctor.py",
    "perfgate doctor --fitness": "its exit code is about this machine: tests/end_to_end/test_doctor.py",
    "perfgate init --gitlab --action tools/perfgate@COMMIT": "COMMIT is of the reader's server: tests/unit/flows/test_init.py",
    "perfgate local --hook": "reads what git gives a hook: tests/end_to_end/test_hook.py",
    "perfgate serve": "serves until it is interrupted: tests/unit/cli/test_serve.py",
    "perfgate ask": "a group of commands",
    "perfgate ask --mcp": "answers until its input ends: tests/unit/service/test_ask.py",
    "perfgate serve --traces DIR": "serves until it is interrupted: tests/unit/cli/test_serve.py",
    "perfgate store": "a group of commands",
    "perfgate store prune": "needs a place for artifacts: tests/unit/store/test_artifact_commands.py",
    "perfgate store upload DIR": "as above",
    "perfgate token": "a group of commands",
    "perfgate token create NAME --scope read|write": "two commands in one: tests/unit/store/test_token_command.py",
    "perfgate token revoke ID": "needs the id of a token: tests/unit/store/test_token_command.py",
    "perfgate trace": "a group of commands",
    "perfgate trend --confirm": "needs eight stored versions of main: tests/end_to_end/test_trend.py",
    "perfgate trend --confirm --out DIR": "as above",
    "perfgate trend --post": "writes an issue on a forge: tests/end_to_end/test_trend.py",
    "perfgate trend --post --confirmations DIR/confirmations.json": "as above",
    "perfgate upgrade": "compares two installed stacks: tests/end_to_end/test_environments.py",
    "perfgate upgrade --bisect": "installs packages and gates for minutes: tests/end_to_end/test_upgrade_bisect.py",
    "perfgate upgrade --python NEW/bin/python": "as above",
    "perfgate upgrade --python PATH": "as above",
    "pip install": "installs what the reader names",
    "pip install uv": "downloads; tests/unit/flows/test_init_lock.py reads the error that names it",
    "pip install 'perfgate[serving]'": "downloads; the extra is in pyproject.toml",
    "pip install 'perfgate[serve]'": "downloads; the extra is in pyproject.toml",
    "pip install 'perfgate[postgres]'": "downloads; the extra is in pyproject.toml",
    "pip install 'perfgate[parquet]'": "downloads; the extra is in pyproject.toml",
    "pip install 'perfgate[artifacts]'": "downloads; the extra is in pyproject.toml",
    "pip install 'perfgate[s3]'": "downloads; the extra is in pyproject.toml",
    "pip install 'perfgate[ray]'": "downloads; the extra is in pyproject.toml",
    "pip install 'perfgate[dask]'": "downloads; the extra is in pyproject.toml",
    "pip install 'perfgate[slurm]'": "downloads; the extra is in pyproject.toml",
    "pip install 'perfgate[fast]'": "downloads; the extra is in pyproject.toml",
    "pip install 'perfgate[zstd]'": "downloads; the extra is in pyproject.toml",
    "pip install torch --index-url https://download.pytorch.org/whl/cpu": "downloads another build of torch",
    "perfgate init --lock": "asks a package index: tests/unit/flows/test_init_lock.py",
    "git -C {name} fetch origin": "needs a clone that lacks a submodule's commit: tests/unit/git/test_contents.py",
    "git lfs fetch origin {commit}": "needs Git LFS: tests/unit/git/test_contents.py",
    "git lfs pull": "needs Git LFS: tests/unit/git/test_contents.py",
    "git submodule update --init --recursive": "needs a repository with submodules: tests/unit/git/test_contents.py",
    "perfgate check --base {}": "measures a change: tests/end_to_end/test_check.py",
    "perfgate check --append-from DIR": "adds to an earlier attempt: tests/end_to_end/test_rerun.py",
    "perfgate completion": "prints a script for a shell: tests/unit/cli/test_options.py",
    "perfgate completion fish \\| source": "needs the shell fish: tests/unit/cli/test_options.py",
}
# What stands for a printed one where only its options and arguments are held against the command line.
WHOLE = {
    "perfgate completion": "perfgate completion bash",
    "perfgate completion fish \\| source": "perfgate completion fish",
    "perfgate baseline record --from": "perfgate baseline record --from DIR",
    "perfgate bisect": "perfgate bisect --good REV",
    "perfgate token create NAME --scope read|write": "perfgate token create NAME --scope read",
    "perfgate upgrade --bisect": "perfgate upgrade --bisect LIST",
}


def printed() -> dict[str, set[str]]:
    """Every printed command, what differs from case to case named in capitals, with the places that print it."""
    found: dict[str, set[str]] = {}
    for place, text in _texts():
        quoted = [match[1] for match in _QUOTED.finditer(text)]
        for command in [*quoted, *(match[1] for match in _BARE.finditer(_QUOTED.sub(" ", text)))]:
            found.setdefault(_general(command), set()).add(place)
    return found


def orders() -> dict[str, set[str]]:
    """Every order that a comment on a change request is told to be."""
    found: dict[str, set[str]] = {}
    for place, text in _texts():
        for match in _ORDER.finditer(text):
            found.setdefault(match[1].strip(), set()).add(place)
    return found


def _general(command: str) -> str:
    command = re.sub(r" 2>.*| > .*", "", command)
    return _ACCEPTED.sub("METRIC ", _COMMIT.sub("COMMIT", command)).strip()


@cache
def _texts() -> tuple[tuple[str, str], ...]:
    package = ROOT / "perfgate"
    texts = [(path, text) for path in package_modules() for text in _strings(path)]
    catalogue = sorted((package / "catalogue").rglob("*.toml"))
    texts += [(path, text) for path in catalogue for text in _values(tomllib.loads(path.read_text("utf-8")))]
    templates = sorted((package / "judging").rglob("*.j2"))
    golden = sorted((ROOT / "tests" / "golden" / "data").iterdir())
    texts += [(path, path.read_text("utf-8")) for path in [*templates, *golden]]
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.glob("*.md"))]
    texts += [
        (path, re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)) for path in pages
    ]
    return tuple((str(path.relative_to(ROOT)), text) for path, text in texts)


def _strings(path: Path) -> Iterator[str]:
    """The text constants of a module but for docstrings; what an f-string fills in is `{}`."""
    skipped = set()
    for node in nodes(path, _PROGRAM) if _MAY_PRINT.search(source(path)) else ():
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            skipped.add(id(body[0].value))
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in node.values)
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value


def _values(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict | list):
        for value in entry.values() if isinstance(entry, dict) else entry:
            yield from _values(value)
