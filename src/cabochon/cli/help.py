"""``--help`` and ``--version``, written as all other output is: click's own would take a full disk for a defect."""

from __future__ import annotations

import click

from cabochon._version import __version__
from cabochon.cli import stdio


class Command(click.Command):
    """A command whose help goes through ``stdio``."""

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The help option; None for a command without one."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option


def _show_help(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        stdio.write(ctx.get_help() + "\n")
        ctx.exit()


def show_version(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    """Callback of ``--version``."""
    if asked and not ctx.resilient_parsing:
        stdio.write(f"cabochon {__version__}\n")
        ctx.exit()
