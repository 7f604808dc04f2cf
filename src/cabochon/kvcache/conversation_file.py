"""A conversation in one file: its ids, and the pages of keys and values that its next turn can use.

Numbers are little-endian:

    16 bytes   the magic
    u32        version of the format
    u32        bytes of the header
    header     JSON: ``model`` and ``arithmetic`` (``Origin``), ``kv_type``, ``groups``, ``tokens``, ``pages``
    i32        each of the ``tokens`` ids
    pages      group by group, of the text's first ``pages`` full pages those that the query after them sees, each as
               ``KVStore.page`` gives it
    32 bytes   SHA-256 of all before it

A reader knows from its own model and the two counts how long the file must be, and checks everything before it reserves
anything. Pages are read one by one into the place where they will stay.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cabochon.errors import ConversationError, shown
from cabochon.kvcache.store import KVStore, page_bytes
from cabochon.types import PAGE, Bytes

VERSION = 1
"""Of the format. It also rises when the arithmetic of keys and values changes (``docs/arithmetic.md``): a file of
before would give other bits."""

MAGIC = b"Cabochon talk\r\n\x1a"

_START = struct.Struct("<16sII")
_MAX_HEADER = 1 << 20
_DIGEST_BYTES = 32
_AT_ONCE = 1 << 20

_REMEDIES = {
    "model": "saved with another model; load the one it was saved with",
    "arithmetic": "its keys and values were computed in another way; load the model as it was then",
    "kv_type": "its keys and values are of another type; load the model with the same kv_type (--kv-type)",
    "groups": "its layers share pages in another way than this model's",
}
_SHOWN = ("arithmetic", "kv_type")


@dataclass(frozen=True, slots=True)
class Origin:
    """What stored keys and values depend on besides ids and the type they are stored in."""

    model: str
    """A hash of weights and description."""
    arithmetic: str
    """The backend, and how activations enter it."""


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` once the block has ended well and all is on the disk.

    Otherwise the old one stays as it is, and nothing is left beside it. Raises ``ConversationError`` if it cannot be
    written.
    """
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            raise ConversationError(f"{path}: not a regular file")
        # Before there is a file: Ctrl-C may come as soon as there is one.
        name = target.parent / f".cabochon-{os.urandom(8).hex()}"
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        with open(name, "xb", opener=_private) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        with suppress(OSError):
            os.unlink(name)


def write_conversation(
    file: BinaryIO, store: KVStore, origin: Origin, ids: Sequence[int], pages: int, held: Sequence[Sequence[int]]
) -> int:
    """Writes ``ids`` and the pages ``held`` [P] that the query after their first ``pages`` full pages sees.

    Returns the number of bytes. The pages must not change meanwhile.
    """
    header = json.dumps({**_described(store, origin), "tokens": len(ids), "pages": pages}).encode()
    digest, size = hashlib.sha256(), 0

    def put(data: bytes | memoryview) -> None:
        nonlocal size
        file.write(data)
        digest.update(data)
        size += len(data)

    put(_START.pack(MAGIC, VERSION, len(header)))
    put(header)
    put(np.asarray(ids, "<i4").tobytes())
    for group, kept in enumerate(held):
        for page in kept:
            for part in store.page(group, page):
                put(part.data)
    file.write(digest.digest())
    return size + _DIGEST_BYTES


class ConversationReader:
    """An open file, found sound. Its pages come in the file's order, one ``read`` for each part of ``KVStore.page``."""

    def __init__(self, path: Path, file: BinaryIO, store: KVStore, origin: Origin, context: int) -> None:
        """As ``open_conversation``."""
        self.path = path
        self._file = file
        self._store = store
        self._size = os.fstat(file.fileno()).st_size
        self._digest = hashlib.sha256()
        header = self._header(self._check_start(), _described(store, origin))
        self.pages = self._count(header, "pages")
        """Full pages of the text that a longer one can reuse."""
        tokens = self._count(header, "tokens")
        if not self.pages * PAGE <= tokens or not tokens:
            raise self._damaged("its counts contradict one another")
        if tokens > context:
            raise ConversationError(
                f"{path}: a conversation of {tokens} tokens; the context is {context}: load the model with a larger one"
                f" (--context {tokens + 1} or more)"
            )
        if self._size != file.tell() + 4 * tokens + self._page_bytes() + _DIGEST_BYTES:
            raise self._damaged("its length is not what its header says")
        ids = np.empty(4 * tokens, np.uint8)
        self.read(ids)
        self.ids: tuple[int, ...] = tuple(ids.view("<i4").tolist())
        """The whole text."""

    def read(self, into: Bytes) -> None:
        """The next bytes of the file, as many as ``into`` takes."""
        # BinaryIO does not tell of readinto, which every file opened in "rb" has.
        if self._file.readinto(into.data) != len(into):  # type: ignore[attr-defined]
            raise self._damaged("it became shorter while it was read")
        self._digest.update(into.data)

    def finish(self) -> None:
        """To be called after the last page and before any of them is used.

        Raises ``ConversationError`` if what was read is not what was found sound.
        """
        if self._file.read(_DIGEST_BYTES) != self._digest.digest():
            raise self._damaged("it changed while it was read")

    def _check_start(self) -> int:
        """Bytes of the header, after a look at everything."""
        start = self._file.read(_START.size)
        if start[: len(MAGIC)] != MAGIC:
            raise ConversationError(f"{self.path}: not a saved conversation")
        if len(start) < _START.size:
            raise self._damaged("it ends within its first bytes")
        _, version, header_bytes = _START.unpack(start)
        if version != VERSION:
            raise ConversationError(
                f"{self.path}: a conversation saved in format {version}; this Cabochon reads format {VERSION} only"
            )
        self._check_digest()
        self._file.seek(_START.size)
        self._digest.update(start)
        return int(header_bytes)

    def _check_digest(self) -> None:
        digest, left = hashlib.sha256(), self._size - _DIGEST_BYTES
        self._file.seek(0)
        while left > 0 and (data := self._file.read(min(left, _AT_ONCE))):
            digest.update(data)
            left -= len(data)
        if self._file.read() != digest.digest():
            raise self._damaged("its checksum is wrong")

    def _header(self, size: int, expected: dict[str, Any]) -> dict[str, Any]:
        if size > min(_MAX_HEADER, self._size - self._file.tell()):
            raise self._damaged(f"a header of {size} bytes is not plausible")
        data = np.empty(size, np.uint8)
        self.read(data)
        try:
            header = json.loads(data.tobytes())
        except (ValueError, RecursionError):
            header = None
        if not isinstance(header, dict):
            raise self._damaged("its header is no JSON object")
        for key, remedy in _REMEDIES.items():
            if header.get(key) != expected[key]:
                found = f": {key} is {shown(header.get(key))}, here it is {shown(expected[key])}"
                raise ConversationError(f"{self.path}: {remedy}{found if key in _SHOWN else ''}")
        return header

    def _count(self, header: dict[str, Any], name: str) -> int:
        value = header.get(name)
        if type(value) is not int or not 0 <= value <= self._size:
            raise self._damaged(f"its number of {name} is {shown(value)}")
        return value

    def _page_bytes(self) -> int:
        store = self._store
        return sum((self.pages - g.first_page(self.pages)) * page_bytes(g, store.kv_type) for g in store.layout.groups)

    def _damaged(self, why: str) -> ConversationError:
        return ConversationError(f"{self.path}: the saved conversation is damaged: {why}")


@contextmanager
def open_conversation(path: Path, store: KVStore, origin: Origin, context: int) -> Iterator[ConversationReader]:
    """The file at ``path``, for a model of this ``origin`` that keeps keys and values in ``store``.

    Raises ``ConversationError`` if there is none that can be read, it is no conversation, of another format, damaged,
    of another model or way to run it, or longer than ``context``.
    """
    try:
        # Asked before opening: opening a pipe would wait for its other end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ConversationError(f"{path}: not a regular file")
        with path.open("rb") as file:
            yield ConversationReader(path, file, store, origin, context)
    except FileNotFoundError:
        raise ConversationError(f"{path}: no such file") from None
    except OSError as error:
        raise ConversationError(f"{path}: cannot be read ({error.strerror or error})") from None


def _described(store: KVStore, origin: Origin) -> dict[str, Any]:
    """What a file's header must say for its pages to be of use in ``store``."""
    groups = [[group.window, group.kv_heads, group.head_dim, list(group.layers)] for group in store.layout.groups]
    return {"model": origin.model, "arithmetic": origin.arithmetic, "kv_type": store.kv_type, "groups": groups}


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _unwritable(path: Path, error: OSError) -> ConversationError:
    return ConversationError(f"{path}: cannot be written ({error.strerror or error})")
