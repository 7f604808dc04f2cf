"""A file of a model in memory: mapped, not read, so that what is not touched costs nothing."""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cabochon.errors import CheckpointError
from cabochon.types import RawTensor


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A mapping and what is needed to see that it still holds what it held. It lasts while anything refers to it."""

    path: Path
    content: mmap.mmap
    _found: os.stat_result

    def release_all(self) -> None:
        """Lets go of all memory; the file is read again where it is touched later."""
        self.content.madvise(mmap.MADV_DONTNEED)

    def release(self, tensor: RawTensor) -> None:
        """Lets go of the memory that holds ``tensor``, as ``release_all``."""
        base = np.frombuffer(self.content, dtype=np.uint8).__array_interface__["data"][0]
        start = tensor.data.__array_interface__["data"][0] - base
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (start + tensor.data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if 0 <= first < last <= len(self.content):
            self.content.madvise(mmap.MADV_DONTNEED, first, last - first)

    def check_unchanged(self) -> None:
        """Raises ``CheckpointError`` if the file was written to since it was opened.

        Another file put in its place does not matter: the mapping is of the old one.
        """
        changed = self.content.size() != len(self.content)
        try:
            now = self.path.stat()
        except OSError:
            now = self._found
        if (now.st_dev, now.st_ino) == (self._found.st_dev, self._found.st_ino):
            changed |= (now.st_size, now.st_mtime_ns) != (self._found.st_size, self._found.st_mtime_ns)
        if changed:
            raise CheckpointError(f"{self.path}: was written to since it was loaded; load the model again")


def map_file(path: Path, shortest: int, what: str) -> MappedFile:
    """Maps the file at ``path``; ``CheckpointError`` if it cannot be read or is shorter than any ``what`` is."""
    try:
        # Asked before opening: opening a pipe would wait for its other end.
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError(f"{path}: not a regular file")
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if found.st_size < shortest:
                raise CheckpointError(f"{path}: not a {what} file, it has only {found.st_size} bytes")
            return MappedFile(path, mmap.mmap(file.fileno(), found.st_size, access=mmap.ACCESS_READ), found)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from None
