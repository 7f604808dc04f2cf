"""``StringArray`` beside a plain list of strings, and what the native scan accepts beside Python's own decoder."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cabochon import _native
from cabochon.checkpoint.strings import PREFIX, StringArray

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
texts = st.lists(text, max_size=8)


def laid_out(strings: Sequence[bytes]) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(b"".join(struct.pack("<Q", len(raw)) + raw for raw in strings), np.uint8)


@given(texts)
def test_it_is_the_sequence_it_was_made_of(strings: list[str]) -> None:
    for array in (StringArray.of(strings), StringArray.read(laid_out([s.encode() for s in strings]), len(strings))):
        assert list(array) == strings
        assert [array[i] for i in range(-len(strings), len(strings))] == strings * 2
        assert list(array[1:-1]) == strings[1:-1]
        assert array.lengths.tolist() == [len(string.encode()) for string in strings]
        assert array.joined.tobytes() == "".join(strings).encode()
        for beyond in (len(strings), -len(strings) - 1):
            with pytest.raises(IndexError):
                array[beyond]


@given(texts, st.dictionaries(st.integers(0, 7), text))
def test_some_may_be_replaced(strings: list[str], changes: dict[int, str]) -> None:
    changes = {index: string for index, string in changes.items() if index < len(strings)}
    array = StringArray.of(strings)
    assert list(array.replaced(changes)) == [changes.get(i, string) for i, string in enumerate(strings)]
    assert list(array) == strings


def test_a_string_without_utf8_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        StringArray.of(["a", "\ud800"])


def is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


LEADS = bytes.fromhex("007f80bfc0c1c2dfe0ecedeeeff0f1f3f4f5ff")
SECONDS = bytes.fromhex("007f808f909fa0bfc0ff")
LATER = bytes.fromhex("7f80bfc0")


def test_exactly_utf8_is_taken() -> None:
    characters = [
        bytes([lead, second, third, fourth][:size])
        for lead in LEADS
        for second in SECONDS
        for third in LATER
        for fourth in LATER
        for size in (1, 2, 3, 4)
    ]
    for character in characters:
        for raw in (character, b"1234567" + character, b"12345678" + character + b"12345678"):
            _, found = _native.string_ends(laid_out([raw]), 1)
            assert bool(found) == is_utf8(raw), raw.hex()


@given(st.lists(st.binary(max_size=12), max_size=5), st.integers(0, 100))
def test_the_scan_stops_at_the_first_damaged_string(strings: list[bytes], cut: int) -> None:
    data = laid_out(strings)
    data = data[: max(len(data) - cut, len(strings) * PREFIX)]
    expected, end = [], 0
    for raw in strings:
        end += PREFIX + len(raw)
        if end > len(data) or not is_utf8(raw):
            break
        expected.append(end)
    ends, found = _native.string_ends(data, len(strings))
    assert ends[:found].tolist() == expected
    assert len(StringArray.read(data, len(strings))) == len(expected)


@pytest.mark.parametrize("length", [9, 2**31, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1])
def test_no_length_leads_beyond_the_end(length: int) -> None:
    data = np.frombuffer(struct.pack("<Q", length) + bytes(8), np.uint8)
    assert _native.string_ends(data, 1)[1] == 0


@pytest.mark.parametrize("count", [-1, 3, 2**60])
def test_more_strings_than_lengths_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        _native.string_ends(np.zeros(23, np.uint8), count)
