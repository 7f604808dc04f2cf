"""How tokens are chosen where a user says nothing: as the model's file asks for, else as Gemma's authors do.

The keys are those that llama.cpp writes, ``general.sampling.temp`` and so on. Keys for what is not implemented
(penalties, XTC, Mirostat) may be there with values that change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from cabochon.errors import CheckpointError, UnsupportedError, UsageError, shown
from cabochon.sampling.params import checked
from cabochon.types import SamplingParams

_PREFIX = "general.sampling."
_FIELDS = MappingProxyType({"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"})

# Not implemented: the value that switches each off, and the keys that only say how it works when on.
_OFF = MappingProxyType({"penalty_repeat": 1, "xtc_probability": 0, "mirostat": 0})
_DETAILS = frozenset({"penalty_last_n", "xtc_threshold", "mirostat_tau", "mirostat_eta"})


def sampling_from_gguf(metadata: Mapping[str, Any]) -> SamplingParams:
    """The parameters that a GGUF file's metadata asks for; what it leaves out is Gemma's.

    Raises ``CheckpointError`` naming the key whose value cannot be, ``UnsupportedError`` for one that asks for what is
    not implemented.
    """
    params = SamplingParams()
    for key, value in metadata.items():
        name = key.removeprefix(_PREFIX)
        if name == key or name in _DETAILS or (name in _OFF and _is(value, _OFF[name])):
            continue
        if name not in _FIELDS:
            raise UnsupportedError(f"metadata {shown(key)} is {shown(value)}, which is not supported")
        try:
            params = checked(replace(params, **{_FIELDS[name]: value}))
        except UsageError as error:
            raise CheckpointError(f"metadata {key}: {error}") from None
    return params


def _is(value: object, number: float) -> bool:
    return isinstance(value, int | float) and value == number
