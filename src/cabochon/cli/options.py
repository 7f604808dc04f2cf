"""Options that several commands share, and the values they take.

A group of options reaches its command as one frozen value: ``@model_options`` gives it ``model: ModelOptions``. Only
what can be judged without a model is judged here; the rest is the session's.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, get_args

import click

from cabochon.ops.cpus import MAX_THREADS
from cabochon.session.loading import MAX_GUESSES, MAX_RUNNING
from cabochon.types import Activations, BackendName, KVType

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

MAX_COUNT = 1 << 24
"""No count (tokens, rows, threads) may be larger; it would be a slip of the hand."""


def whole(low: int, high: int = MAX_COUNT) -> Callable[[str | int], int]:
    """Reads a whole number from ``low`` to ``high``, both inclusive; ``BadParameter`` names what is none."""

    def convert(value: str | int) -> int:
        try:
            number = int(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a whole number") from None
        if not low <= number <= high:
            raise click.BadParameter(f"{number} is not between {low} and {high}")
        return number

    return convert


def real(words: str, allowed: Callable[[float], bool]) -> Callable[[str | float], float]:
    """Reads a finite number in the range that ``words`` describe; ``BadParameter`` names what is none."""

    def convert(value: str | float) -> float:
        try:
            number = float(value)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not a number") from None
        if not (math.isfinite(number) and allowed(number)):
            raise click.BadParameter(f"{value} is not {words}")
        return number

    return convert


COUNT = whole(1)
"""At least one of something."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model, and how it is run."""

    model: str
    backend: BackendName | Literal["auto"]
    threads: int | None
    chunk: int | None
    context: int | None
    activations: Activations
    kv_type: KVType


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How many generations run together, and in what memory; fields as ``cabochon.load`` takes them."""

    max_running: int
    kv_memory: int | None
    speculate: int


model_name = click.option(
    "--model", default="demo", show_default=True, metavar="MODEL", help="A GGUF file, a directory with one, or 'demo'."
)

kv_type = click.option(
    "--kv-type",
    type=click.Choice(get_args(KVType)),
    default="f16",
    show_default=True,
    help="How keys and values are stored.",
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")

max_tokens = click.option(
    "--max-tokens", type=COUNT, metavar="N", default=128, show_default=True, help="Stop after so many new tokens."
)

ignore_eos = click.option("--ignore-eos", is_flag=True, help="Go on where the model would end.")


def not_empty(value: str) -> str:
    """Reads a text of at least one character; ``BadParameter`` names what is none."""
    if not value:
        raise click.BadParameter("the empty text would end every text before its first character")
    if any(0xD800 <= ord(character) < 0xE000 for character in value):
        raise click.BadParameter(f"{value!r} is not UTF-8")
    return value


def model_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of ``ModelOptions``; the command gets them as ``model``."""
    decorators: list[Decorator] = [
        model_name,
        click.option(
            "--backend",
            type=click.Choice(["auto", *get_args(BackendName)]),
            default="auto",
            show_default=True,
            help="'native' is the C++ core, 'torch' the PyTorch reference; 'auto' is native.",
        ),
        click.option(
            "--threads",
            type=whole(1, MAX_THREADS),
            metavar="N",
            help="Default: the physical cores this process may use.",
        ),
        click.option(
            "--chunk", type=COUNT, metavar="N", help="Rows of the prompt per step; changes speed and memory, no result."
        ),
        click.option(
            "--context",
            type=COUNT,
            metavar="N",
            help="Tokens to reserve memory for. Default: 4096, or the model's if less.",
        ),
        click.option(
            "--activations",
            type=click.Choice(get_args(Activations)),
            default="int8x2",
            show_default=True,
            help="Two int8 terms per value, as exact as float32 in effect, or one: faster prefill, less exact.",
        ),
        kv_type,
    ]
    return bundled(function, "model", ModelOptions, decorators)


def engine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of ``EngineOptions``; the command gets them as ``engine``."""
    decorators: list[Decorator] = [
        click.option(
            "--max-running",
            type=whole(1, MAX_RUNNING),
            default=1,
            show_default=True,
            metavar="N",
            help="Prompts of --input, or choices, that run together; changes speed and memory, no result.",
        ),
        click.option(
            "--kv-memory",
            type=size,
            metavar="SIZE",
            help="Memory for keys and values, as 512M or 2G. Default: what --max-running whole contexts take.",
        ),
        click.option(
            "--speculate",
            type=whole(0, MAX_GUESSES),
            default=0,
            show_default=True,
            metavar="N",
            help="Guess up to N tokens from the text's own words and try them in one step: the same text, sooner where"
            " it repeats itself.",
        ),
    ]
    return bundled(function, "engine", EngineOptions, decorators)


def size(value: str | int) -> int:
    """Reads a number of bytes, with K, M, G or T for powers of 1024; ``BadParameter`` names what is none."""
    match = re.fullmatch(r"([0-9]{1,15})([KMGT]?)(i?B)?", str(value), re.IGNORECASE | re.ASCII)
    if match is None or int(match[1]) < 1:
        raise click.BadParameter(f"{value!r} is not a size; write it as 512M or 2G")
    return int(match[1]) << 10 * " KMGT".index(match[2].upper() or " ")


def bundled(function: Callable[..., Any], name: str, bundle: type, decorators: list[Decorator]) -> Callable[..., Any]:
    """``function`` with the decorators' options, which it gets as one ``bundle`` called ``name``."""

    @functools.wraps(function)
    def command(*args: Any, **options: Any) -> Any:
        values = {field.name: options.pop(field.name) for field in fields(bundle)}
        return function(*args, **{name: bundle(**values)}, **options)

    decorated: Callable[..., Any] = command
    for decorate in reversed(decorators):
        decorated = decorate(decorated)
    return decorated
