"""The command line: finds the commands, and converts errors into messages and exit codes."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NoReturn

import click

from perfgate.cli import commands
from perfgate.cli.groups import CommandGroup
from perfgate.cli.isolation import CommandProcess
from perfgate.cli.language import command_line_language, localized
from perfgate.cli.streams import harmless, make_streams_last
from perfgate.errors import (
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_PASS,
    EXIT_USAGE,
    PerfgateError,
)
from perfgate.git.settings import untie
from perfgate.locale import sentence, speaking
from perfgate.plugins import load_member, member_names
from perfgate.version import __version__

# Of an address; it may hold a password.
USER_INFORMATION = r"(?<=://)[^\s/@]*:\S*@"
# Of the query of an address, such as libpq's options.
HIDDEN_OPTION = r"(?i)(?<=[?&])(password|token|secret)=[^\s&]*"
# In the order in which a newcomer needs them. Commands in no section come last, under "More".
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Start": ("init", "config", "demo", "doctor"),
    "Judge": ("local", "check", "run", "gate", "upgrade", "bisect"),
    "Look": (
        "advise",
        "explain",
        "ask",
        "trace",
        "serve",
        "token",
        "baseline",
        "store",
        "trend",
        "site",
    ),
    "CI": ("plan", "publish", "command", "report"),
    "Shell": ("completion",),
}


class CommandFolder(CommandGroup):
    """A click group with the modules in ``commands/`` as members, imported on demand."""

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[str]]]:
        rest = self.list_commands(ctx)
        for heading, names in SECTIONS.items():
            present = [name for name in names if name in rest]
            yield heading, present
            for name in present:
                rest.remove(name)
        if rest:
            yield "More", rest

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name.replace("_", "-") for name in _modules()]

    def member(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command; None if there is no such file."""
        module = name.replace("-", "_")
        if module not in _modules():
            return None
        command: click.Command = load_member(commands, module).COMMAND
        return command


@cache
def _modules() -> list[str]:
    # The folder is listed once: `perfgate --help` asks for every command.
    return member_names(commands)


@click.group(
    cls=CommandFolder,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 PASS, WARN or SKIPPED · 1 FAIL · 2 wrong usage or configuration · 3 INCONCLUSIVE · "
    "4 measuring failed, or a forge or store refused · 5 a bug in perfgate · 130 interrupted",
)
@click.version_option(__version__, prog_name="perfgate")
def cli() -> None:
    """Judge whether a change makes a PyTorch model slower, alternating with its base on the same device, and show the
    cause."""


def main() -> NoReturn:
    """Run the command line and exit with the documented code."""
    make_streams_last()
    if sys.platform != "linux":
        words = sentence(
            "perfgate runs on Linux only (/proc, process groups, Unix sockets); use a Linux machine, a container or WSL 2 "
            "(this is {platform})",
            platform=sys.platform,
        )
        _say(f"perfgate: {words}")
        sys.exit(EXIT_USAGE)
    from perfgate.system.interrupts import install  # uses signals that only Unix has

    untie(os.environ)
    try:
        install()
        with speaking(command_line_language(sys.argv[1:], os.environ)):
            # A command that ends by Context.exit() makes click return the code.
            ended = localized(cli).main(
                prog_name="perfgate", standalone_mode=False, obj=CommandProcess()
            )
        code = ended if isinstance(ended, int) else EXIT_PASS
    except PerfgateError as error:
        _say(f"perfgate: {error.shown}")
        code = error.exit_code
    except click.ClickException as error:
        error.show()
        code = EXIT_USAGE
    except (KeyboardInterrupt, click.Abort):
        _say("perfgate: " + sentence("interrupted"))
        code = EXIT_INTERRUPTED
        # A KeyboardInterrupt that came through an exec() of source text (a dataclass being defined while a module is
        # imported) makes CPython die of SIGINT at its end, regardless of our exit code; running any source text resets this
        # (Python/pythonrun.c, run_eval_code_obj).
        exec("")  # noqa: S102
    except Exception:  # noqa: BLE001 - the only place that reports a bug
        _report_bug()
        code = EXIT_BUG
    # The process ends: searching all that it imported for garbage would take a tenth of a short command's time.
    gc.freeze()
    sys.exit(code)


def _say(text: str) -> None:
    click.echo(harmless(text), err=True)


def _report_bug() -> None:
    import platform  # here, because `perfgate --help` does not need them
    import re
    import tempfile
    import traceback

    text = "".join(
        [
            f"perfgate {__version__}\npython {sys.version}\nplatform {platform.platform()}\n",
            f"command {' '.join(sys.argv[1:])}\n\n",
            traceback.format_exc(),
        ]
    )
    text = re.sub(USER_INFORMATION, "***@", text)
    text = re.sub(HIDDEN_OPTION, r"\1=***", text)
    _say(text)
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="perfgate-bug-", suffix=".log", delete=False
        ) as file:
            file.write(text)
    except OSError:
        _say(
            "perfgate: "
            + sentence(
                "this is a bug in perfgate; please report it with the lines above"
            )
        )
    else:
        _say(
            "perfgate: "
            + sentence(
                "this is a bug in perfgate; please report it with the lines above, which also stand in {file}",
                file=file.name,
            )
        )


if __name__ == "__main__":
    main()
