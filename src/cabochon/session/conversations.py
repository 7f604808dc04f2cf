"""A session's conversations, to files and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from cabochon.engine.engine import Engine
from cabochon.errors import ContextLengthError, ConversationError, UsageError, shown
from cabochon.kvcache.conversation_file import Origin, new_file, open_conversation, write_conversation
from cabochon.kvcache.pages import PagePool
from cabochon.kvcache.prefix import PrefixCache
from cabochon.kvcache.restore import restore
from cabochon.kvcache.store import KVStore
from cabochon.session.results import SavedConversation
from cabochon.types import PAGE

_TENANT = ""
"""Whose texts a session's requests are, as in ``Request``."""


class Conversations:
    """Saves and loads what an engine has stored. Its steps wait meanwhile, but its requests need not have ended."""

    def __init__(
        self, engine: Engine, pools: Sequence[PagePool], store: KVStore, origin: Callable[[], Origin] | None
    ) -> None:
        """``pools`` and ``store`` are the engine's."""
        self._engine = engine
        self._pools = pools
        self._store = store
        self._origin = origin

    def save(self, path: str | Path, ids: Sequence[int]) -> SavedConversation:
        """As ``Session.save_conversation``, for ids of the vocabulary."""
        path, prefixes = _checked(path), self._prefixes()
        if len(ids) > self._engine.limits.context:
            raise ContextLengthError(
                f"the conversation has {len(ids)} tokens, more than the context of {self._engine.limits.context}"
            )
        origin = self._found_origin()
        with new_file(path) as file:
            return self._engine.at_rest(lambda: self._write(file, prefixes, origin, ids))

    def load(self, path: str | Path) -> tuple[int, ...]:
        """As ``Session.load_conversation``."""
        path, prefixes = _checked(path), self._prefixes()
        limits = self._engine.limits
        with open_conversation(path, self._store, self._found_origin(), limits.context) as file:
            try:
                ids = limits.check_ids("conversation", file.ids)
            except UsageError as error:
                raise ConversationError(f"{path}: {error}") from None
            self._engine.at_rest(lambda: restore(file, self._store, self._pools, prefixes, _TENANT))
        return ids

    def _write(self, file: BinaryIO, prefixes: PrefixCache, origin: Origin, ids: Sequence[int]) -> SavedConversation:
        known, usable = prefixes.held(ids, _TENANT)
        held = [
            [page[group] for page in known[kv.first_page(usable) : usable]]
            for group, kv in enumerate(self._store.layout.groups)
        ]
        nbytes = write_conversation(file, self._store, origin, ids, usable, held)
        return SavedConversation(len(ids), usable * PAGE, nbytes)

    def _prefixes(self) -> PrefixCache:
        if self._engine.prefixes is None:
            raise UsageError("a conversation needs the prefix cache; load the model with prefix_cache=True")
        return self._engine.prefixes

    def _found_origin(self) -> Origin:
        if self._origin is None:
            raise UsageError("this session has no model file to tell its conversations by; open one with cabochon.load")
        return self._origin()


def _checked(path: object) -> Path:
    if not isinstance(path, str | Path) or not str(path) or "\0" in str(path):
        raise UsageError(f"path must be the path of a file, not {shown(path)}")
    return Path(path)
