from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from perfgate.cli import commands
from perfgate.cli.main import SECTIONS
from perfgate.cli.streams import harmless, print_json
from perfgate.errors import UsageError
from perfgate.flows.shared.options import parse_steps
from perfgate.plugins import member_names
from perfgate.version import __version__
from tests.each import each


def _perfgate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfgate.cli.main", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_help__modules__none_of_the_heavy_ones_is_imported() -> None:
    script = (
        "import sys\nfrom perfgate.cli.main import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "heavy = {'torch', 'scipy', 'requests', 'git', 'numpy', 'rich', 'jsonschema', 'sqlalchemy', 'jinja2'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exit codes: 0 PASS" in done.stdout


@each("name", member_names(commands))
def test_help__every_command__its_sentence_and_a_line_for_every_option(name: str) -> None:
    from click.testing import CliRunner

    from perfgate.cli.main import cli

    found = CliRunner().invoke(cli, [name, "--help"], terminal_width=1000)
    command = cli.get_command(click.Context(cli), name)
    assert found.exit_code == 0
    assert command is not None
    assert command.help is not None
    sentence = " ".join(command.help.partition("\n\n")[0].split())
    assert sentence.endswith((".", "?"))
    assert sentence in found.output
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.opts[-1] for option in options if not option.help or option.opts[-1] not in found.output] == []


def test_version__option__names_the_program() -> None:
    from click.testing import CliRunner

    from perfgate.cli.main import cli

    assert CliRunner().invoke(cli, ["--version"]).output == f"perfgate, version {__version__}\n"


def test_help__at_80_columns__every_command_once_in_its_group_on_one_whole_line() -> None:
    lines = _perfgate("--help", COLUMNS="80").stdout.splitlines()
    headings = [lines.index(f"{heading}:") for heading in SECTIONS]
    assert headings == sorted(headings)
    rows = [line.split(maxsplit=1) for line in lines[headings[0] :] if line.startswith("  ") and line.endswith(".")]
    assert sorted(row[0] for row in rows) == sorted(member_names(commands))
    assert all(row[1][0].isupper() for row in rows)
    assert "More:" not in lines
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("group", ["trace", "baseline"])
def test_help__of_a_group__no_sentence_is_cut(group: str) -> None:
    text = _perfgate(group, "--help", COLUMNS="80").stdout
    assert "Commands:" in text
    assert "..." not in text.partition("Commands:")[2]
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["chekc"], "No such command 'chekc'. Did you mean 'check'?"),
        (["INIT"], "No such command 'INIT'. Did you mean 'init'?"),
        (["trace", "tpo"], "No such command 'tpo'. Did you mean 'top'?"),
        (["nothing-like-it"], "No such command 'nothing-like-it'.\n"),
        (["check", "--worklod", "x"], "--workload"),
    ],
)
def test_main__mistyped__exit_2_and_what_was_meant(arguments: list[str], meant: str) -> None:
    done = _perfgate(*arguments)
    assert done.returncode == 2
    assert meant in done.stderr


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_main__not_linux__exit_2_and_what_to_use(platform: str) -> None:
    """Modules and signals that Python has on Unix alone are not there on Windows."""
    script = f"import click, signal, sys\nsys.platform = {platform!r}\n"
    if platform == "win32":
        script += "del signal.SIGHUP, signal.SIGALRM, signal.SIGKILL\n"
        script += "sys.modules.update(dict.fromkeys(['fcntl', 'grp', 'pwd', 'resource', 'termios', 'pty']))\n"
    script += "from perfgate.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("perfgate: perfgate runs on Linux only")
    assert f"a Linux machine, a container or WSL 2 (this is {platform})" in done.stderr


def test_completion__bash__its_script_completes_commands_options_and_names(tmp_path: Path) -> None:
    """As a user's shell does: eval the script, then ask its function."""
    program = tmp_path / "perfgate"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m perfgate.cli.main "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(perfgate completion bash)"
        for words in "perfgate tre" "perfgate gate --js" "perfgate explain transfer.share.w"; do
          COMP_WORDS=($words) COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
          _perfgate_completion perfgate
          echo "${COMPREPLY[@]}"
        done
        complete -p perfgate
    """
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    *completed, how = done.stdout.splitlines()
    assert completed == ["trend", "--json", "transfer.share.warning"], done.stderr
    assert "_perfgate_completion perfgate" in how


@pytest.mark.parametrize(
    ("shell", "line"), [("zsh", "#compdef perfgate"), ("fish", "complete --no-files --command perfgate")]
)
def test_completion__other_shells__the_script_of_that_shell(shell: str, line: str) -> None:
    from click.testing import CliRunner

    from perfgate.cli.main import cli

    found = CliRunner().invoke(cli, ["completion", shell])
    assert (found.exit_code, line in found.output, "_PERFGATE_COMPLETE" in found.output) == (0, True, True)


def test_print_json__text_that_github_obeys__the_same_value_and_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"subject": "##[add-path]/tmp"})
    printed = capsys.readouterr().out
    assert "##[" not in printed
    assert json.loads(printed) == {"subject": "##[add-path]/tmp"}


def test_main__broken_installation__exit_5_and_a_log_to_paste(tmp_path: Path) -> None:
    """A module that shadows one of ours is the kind of bug no message of ours foresees."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "msgspec.py").write_text("raise RuntimeError('half installed')")
    address = "postgresql://perfgate:secret-value@db/perf?sslmode=require&password=secret-value"
    environ = {"PYTHONPATH": str(broken), "TMPDIR": str(tmp_path), "MY_TOKEN": "secret-value"}
    done = _perfgate("store", "verify", address, "-C", str(tmp_path), **environ)
    assert done.returncode == 5
    assert "this is a bug in perfgate; please report it with the lines above, which also stand in" in done.stderr
    (log,) = tmp_path.glob("perfgate-bug-*.log")
    text = log.read_text()
    assert text.startswith("perfgate 0.")
    assert "command store verify postgresql://***@db/perf?sslmode=require&password=*** -C" in text
    assert "RuntimeError: half installed" in text
    assert "secret-value" not in text + done.stderr


def test_main__broken_installation_and_no_place_for_a_log__exit_5_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise RuntimeError('half installed')")
    (tmp_path / "tempfile.py").write_text("def NamedTemporaryFile(*a, **k): raise OSError('no space')")
    done = _perfgate("run", PYTHONPATH=str(tmp_path))
    assert done.returncode == 5
    assert "please report it with the lines above" in done.stderr


def test_main__reader_of_the_output_gone__the_exit_code_is_not_a_verdict(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "perfgate.cli.main", "--help"], stdout=write_end, stderr=subprocess.PIPE, check=False
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\n::error::x", "a\n| ::error::x"),
        ("a\n  ::set-env name=x::y", "a\n|   ::set-env name=x::y"),
        ("##[add-path]/tmp", "## [add-path]/tmp"),
        ("std::bad_alloc", "std::bad_alloc"),
        ("\x1b[2Jgone", "\ufffd[2Jgone"),
    ],
)
def test_harmless__outside_text__no_command_of_a_ci_host(text: str, shown: str) -> None:
    assert harmless(text) == shown


@pytest.mark.parametrize(
    ("text", "steps"),
    [(None, tuple(range(1, 20))), ("1", (1,)), ("3-5,1", (1, 3, 4, 5)), ("latency, batch", (1, 5)), ("2,2,2-2", (2,))],
)
def test_parse_steps__numbers_ranges_names__sorted_once_each(text: str, steps: tuple[int, ...]) -> None:
    assert parse_steps(text) == steps


@each("text", ["99", "0", "fast", "3-", "-3", "5-1", "1-99999999999", "²", ",", "", "1;2", "1.5"])
def test_parse_steps__nonsense__refused_with_what_there_is(text: str) -> None:
    with pytest.raises(UsageError, match=r"there are 1 latency, 2 utilization|write numbers, ranges or names"):
        parse_steps(text)
