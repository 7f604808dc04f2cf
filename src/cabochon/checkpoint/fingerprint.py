"""What tells one model from every other: a hash of all that its keys and values depend on."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, replace

from cabochon.checkpoint.load import Checkpoint

_AT_ONCE = 8 << 20
_NO_MATTER = ("context_length", "bos_id", "eos_ids")


def fingerprint(checkpoint: Checkpoint) -> str:
    """SHA-256, in hex, of the description and of every tensor: its name, type, shape and bytes.

    Reads the whole file, a gigabyte in about a second, and lets go of each part of it again. Raises ``CheckpointError``
    if the file was written to since it was opened.
    """
    checkpoint.mapped.check_unchanged()
    fields = {name: value for name, value in asdict(checkpoint.config).items() if name not in _NO_MATTER}
    digest = hashlib.sha256(repr(sorted(fields.items())).encode())
    for name, tensor in sorted(checkpoint.tensors.items()):
        digest.update(f"\n{name} {tensor.type.name} {tensor.shape}\n".encode())
        for first in range(0, tensor.data.nbytes, _AT_ONCE):
            part = tensor.data[first : first + _AT_ONCE]
            digest.update(part.data)
            checkpoint.mapped.release(replace(tensor, data=part))
    checkpoint.mapped.release_all()
    checkpoint.mapped.check_unchanged()
    return digest.hexdigest()
