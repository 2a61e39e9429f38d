"""``perfgate completion``."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def COMMAND(shell: str) -> None:
    """Print the script that makes a shell complete commands.

    \b
    bash   eval "$(perfgate completion bash)"    in ~/.bashrc
    zsh    eval "$(perfgate completion zsh)"     in ~/.zshrc, after compinit
    fish   perfgate completion fish | source     in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    program = click.get_current_context().find_root().command
    click.echo(kind(program, {}, "perfgate", "_PERFGATE_COMPLETE").source())
