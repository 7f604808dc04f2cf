"""Many strings in one piece of memory, as GGUF lays them out, decoded one by one when asked for.

A vocabulary has a quarter of a million; made into objects they would cost a tenth of a second and 20 MB at every start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from cabochon import _native
from cabochon.types import Bytes

PREFIX = 8
"""Bytes before each string: its length, little endian."""


class StringArray(Sequence[str]):
    """An immutable sequence of strings that are valid UTF-8."""

    __slots__ = ("_data", "_ends")

    def __init__(self, data: bytes, ends: NDArray[np.int64]) -> None:
        """``data`` holds before each string its length; ``ends`` [n] says where in it each string ends."""
        self._data = data
        self._ends = ends

    @classmethod
    def of(cls, strings: Iterable[str]) -> StringArray:
        """The same strings; raises ``UnicodeEncodeError`` for one that has no UTF-8."""
        pieces = [_laid_out(string) for string in strings]
        ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
        return cls(b"".join(pieces), ends)

    @classmethod
    def read(cls, data: Bytes, count: int) -> StringArray:
        """The strings at the beginning of ``data``, copied; fewer than ``count`` if one is damaged.

        That one reaches beyond ``data`` or is not UTF-8.
        """
        ends, found = _native.string_ends(data, count)
        ends = ends[:found]
        return cls(data[: ends[-1] if found else 0].tobytes(), ends)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return tuple(self[index] for index in range(*at.indices(len(self))))
        index = range(len(self))[at]
        start = self._ends.item(index - 1) if index else 0
        return self._data[start + PREFIX : self._ends.item(index)].decode()

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in self._ends.tolist():
            yield self._data[start + PREFIX : end].decode()
            start = end

    @property
    def nbytes(self) -> int:
        """Bytes of the strings and their lengths."""
        return len(self._data)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[n] bytes of each string."""
        return np.diff(self._ends, prepend=0) - PREFIX

    @property
    def joined(self) -> Bytes:
        """The bytes of all strings, one after another."""
        starts = np.append(0, self._ends[:-1])
        own = np.ones(len(self._data), np.bool_)
        for byte in range(PREFIX if len(self) else 0):
            own[starts + byte] = False
        return np.frombuffer(self._data, np.uint8)[own]

    def replaced(self, changes: Mapping[int, str]) -> StringArray:
        """The same strings, but for those at the indices of ``changes``.

        Raises ``UnicodeEncodeError`` for a new one that has no UTF-8.
        """
        indices = sorted(changes)
        pieces = [_laid_out(changes[index]) for index in indices]
        sizes = np.diff(self._ends, prepend=0)
        ends = self._ends[indices]
        starts = ends - sizes[indices]
        sizes[indices] = [len(piece) for piece in pieces]
        memory, done = memoryview(self._data), 0
        parts: list[bytes | memoryview] = []
        for piece, start, end in zip(pieces, starts.tolist(), ends.tolist(), strict=True):
            parts += [memory[done:start], piece]
            done = end
        parts.append(memory[done:])
        return StringArray(b"".join(parts), np.cumsum(sizes))


def _laid_out(string: str) -> bytes:
    raw = string.encode()
    return len(raw).to_bytes(PREFIX, "little") + raw
