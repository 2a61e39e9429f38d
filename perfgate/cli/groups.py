"""Command groups with untruncated help lines, and with suggestions for a mistyped command."""

from __future__ import annotations

from collections.abc import Iterator

import click

from perfgate.cli.language import localized

_LONGEST_SENTENCE = 1000


class CommandGroup(click.Group):
    """A group that shows the whole first sentence of every command in its help."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = self.member(ctx, cmd_name)
        if command:
            return localized(command)
        return None

    def member(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a name, untranslated."""
        return super().get_command(ctx, name)

    def sections(self, ctx: click.Context) -> Iterator[tuple[str, list[str]]]:
        """The headings of the help, each with the names of its commands."""
        yield "Commands", self.list_commands(ctx)

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        widest = max(map(len, self.list_commands(ctx)))
        for heading, names in self.sections(ctx):
            rows: list[tuple[str, str]] = []
            for name in names:
                if command := self.get_command(ctx, name):
                    text = command.get_short_help_str(_LONGEST_SENTENCE)
                    rows.append((name.ljust(widest), text.partition("。")[0]))
            with formatter.section(heading):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            import difflib

            close = difflib.get_close_matches(
                name.lower(), self.list_commands(ctx), n=2
            )
            suggestion = ""
            if close:
                suggestion = f" Did you mean {' or '.join(map(repr, close))}?"
            ctx.fail(f"No such command {name!r}.{suggestion}")
        return super().resolve_command(ctx, args)
