"""Writes the reference part of ``docs/cli.md`` from the commands themselves.

    python docs/make_cli_help.py

A test compares the two, so the page cannot drift from the program.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from cabochon.cli.main import COMMANDS, cli

PAGE = Path(__file__).with_name("cli.md")
MARK = "<!-- From here on written by make_cli_help.py. -->\n"


def reference() -> str:
    """The reference of all commands, as Markdown."""
    context = click.Context(cli, info_name="cabochon")
    pages = []
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        pages.append("\n".join(_page(name, command)))
    return "\n".join(pages)


def page() -> str:
    """What ``docs/cli.md`` should hold: its own beginning, then the reference."""
    return PAGE.read_text().partition(MARK)[0] + MARK + "\n" + reference()


def _page(name: str, command: click.Command) -> Iterator[str]:
    arguments = "".join(f" {p.metavar}" for p in command.params if isinstance(p, click.Argument))
    yield f"## cabochon {name}\n"
    yield f"    cabochon {name}{arguments} [OPTIONS]\n"
    yield f"{inspect.cleandoc(command.help or '')}\n"
    yield "| option | | default |"
    yield "|---|---|---|"
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"| {_names(option)} | {option.help} | {_default(option)} |"
    yield ""
    yield from (f"    {line.strip()}" for line in (command.epilog or "").splitlines() if "cabochon" in line)
    yield ""


def _names(option: click.Option) -> str:
    value = option.metavar or ""
    if isinstance(option.type, click.Choice):
        value = " or ".join(map(str, option.type.choices))
    return " ".join(f"`{part}`" for part in (*option.opts, value) if part)


def _default(option: click.Option) -> str:
    return f"`{option.default}`" if option.show_default else ""


if __name__ == "__main__":
    PAGE.write_text(page())
