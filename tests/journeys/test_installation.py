"""What a journey starts from."""

from __future__ import annotations

from pathlib import Path

from tests.journeys.installation import ROOT
from tests.journeys.shell import Shell


def test_shell__first_commands_of_a_new_user__perfgate_of_the_wheel_in_a_clean_environment(shell: Shell) -> None:
    where = shell.types("python -c 'import perfgate; print(perfgate.__file__)'")
    assert Path(where.text.strip()).is_relative_to(shell.environment["VIRTUAL_ENV"])
    assert Path(shell.types("command -v perfgate").text.strip()).is_relative_to(shell.environment["VIRTUAL_ENV"])
    shell.types("perfgate --version").shows("perfgate")
    shell.types("env").hides("PERFGATE_", "GIT_", "PYTHON", "GITHUB_", str(ROOT))
    shell.types("git config --global --list", ends=(1, 128))
    assert not shell.folder.is_relative_to(ROOT)


def test_shell__line_changes_folder_and_exports__next_line_is_there_and_sees_it(shell: Shell) -> None:
    shell.types("mkdir model && cd model && export COLOUR=blue")
    shell.types('echo "in $(basename "$PWD"): $COLOUR"').shows("in model: blue")
    shell.types("exit 7", ends=7)


def test_shell__program_in_the_background__there_once_it_said_so_and_ended_by_ctrl_c(shell: Shell) -> None:
    shell.writes("news", "ready\n")
    program = f"tail -f {shell.folder}/news"
    with shell.starts(program, until="ready"):
        shell.types(f"pgrep -f '^{program}$'")
    shell.types(f"pgrep -f '^{program}$'", ends=1)
