"""``--load-conversation`` and ``--save-conversation``: a text goes on where an earlier command left it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cabochon.cli.options import bundled
from cabochon.cli.prompt import Prompt
from cabochon.errors import UsageError
from cabochon.session import Session


@dataclass(frozen=True, slots=True)
class ConversationOptions:
    """Files of conversations."""

    load_conversation: str | None
    save_conversation: str | None


def conversation_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of ``ConversationOptions``; the command gets them as ``conversation``."""
    return bundled(
        function,
        "conversation",
        ConversationOptions,
        [
            click.option(
                "--load-conversation",
                metavar="FILE",
                help="Go on with the text in this file: the prompt comes after it; what is stored is not run again.",
            ),
            click.option(
                "--save-conversation",
                metavar="FILE",
                help="Write prompt and reply, and what is stored of them, to this file; it may be the one loaded.",
            ),
        ],
    )


def check_place(option: str, path: str | None) -> None:
    """Raises ``UsageError`` naming the option if there is no folder for a file that is to be saved later."""
    if path is not None and not (path and Path(path).parent.is_dir()):
        raise UsageError(f"{option} {path!r}: there is no such folder")


def prompt_after(session: Session, path: str | None, prompt: Prompt) -> Prompt:
    """``prompt``; or ids of the conversation at ``path`` and then its own, a text's without BOS."""
    if path is None:
        return prompt
    new = session.tokenize(prompt, bos=False) if isinstance(prompt, str) else prompt
    return [*session.load_conversation(path), *new]


def save_after(session: Session, path: str, prompt: Prompt, reply: Sequence[int]) -> str:
    """Saves a conversation; what there is to say about it."""
    saved = session.save_conversation(path, [*session.prompt_ids(prompt), *reply])
    return f"{saved.tokens} tokens, {saved.stored_tokens} of them stored, in {saved.nbytes / 2**20:,.1f} MiB"
