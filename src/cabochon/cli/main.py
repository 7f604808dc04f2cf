"""Entry point of the ``cabochon`` command: finds the subcommand, and turns every error into one line and an exit code.

Subcommands are imported when they are called for, so that ``cabochon --version`` and usage errors are quick.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType, MappingProxyType
from typing import Any

import click

from cabochon.cli import stdio
from cabochon.cli.help import Command, show_version
from cabochon.errors import CabochonError, UsageError

OK, FAILED, USAGE = 0, 1, 2
"""Exit codes; 1 is for errors while running, 2 for what was asked for."""

DEBUG = "CABOCHON_DEBUG"
"""Environment variable: when set, errors come with their traceback."""

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "generate": "Continue a text.",
        "score": "Log-probabilities and perplexity of a text.",
        "verify": "Prove that the KV cache changes nothing, bit for bit.",
        "trace": "Show what every step of a generation did.",
        "inspect": "What a model file holds, and what its KV cache will take.",
        "bench": "Speed of this machine.",
        "doctor": "What Cabochon finds on this machine.",
    }
)
"""Subcommands, each in the module of its name, with their one-line help."""


class _Commands(Command, click.Group):
    """A group that knows its commands' names and imports one when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"cabochon.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    # click would answer these two with exit codes and words of its own.

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        try:
            return super().make_context(*arguments, **options)
        except BrokenPipeError:
            raise _ReaderGoneError from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _InterruptedError from None
        except BrokenPipeError:
            raise _ReaderGoneError from None


class _InterruptedError(Exception):
    """Ctrl-C or SIGTERM."""


class _ReaderGoneError(Exception):
    """Whoever read our output has closed it."""


@click.group(
    cls=_Commands,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
Examples:
  cabochon generate "The capital of France is"
  cabochon verify "The capital of France is"
  cabochon generate --help""",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Run Google's Gemma models, fast on an ordinary CPU.

    Results go to standard output, everything else to standard error. The exit code is 0, 1 (it failed) or 2 (what was
    asked for cannot be).
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line ``arguments`` (default: the process's own) and returns the exit code."""
    stdio.prepare()
    with _terminated_as_interrupted():
        try:
            code = cli.main(arguments, prog_name="cabochon", standalone_mode=False)
            stdio.flush()
            return code if isinstance(code, int) else OK
        except (_ReaderGoneError, BrokenPipeError):
            return OK
        except (_InterruptedError, click.Abort, KeyboardInterrupt):
            return _fail("cancelled", FAILED)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context is not None else ""
            return _fail(error.format_message() + hint, error.exit_code)
        except UsageError as error:
            return _fail(str(error), USAGE)
        except CabochonError as error:
            return _fail(str(error), FAILED)
        except MemoryError:
            return _fail("not enough memory; a smaller --context needs less", FAILED)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return _fail(f"unexpected {reason} (a defect: please report it with {DEBUG}=1 set)", FAILED)


def _fail(message: str, code: int) -> int:
    if os.environ.get(DEBUG):
        traceback.print_exc()
    stdio.error(f"error: {message}")
    return code


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends what is running as Ctrl-C does."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
