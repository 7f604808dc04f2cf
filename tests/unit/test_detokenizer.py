"""Streamed = whole: the deltas of any ids, joined, are the text of the ids."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from cabochon.errors import UsageError
from cabochon.testing.vocabulary import BOS, EOS, UNK, tiny_vocabulary
from cabochon.text.detokenizer import Detokenizer
from cabochon.text.tokenizer import Tokenizer

SIZE = 360
VOCABULARY = tiny_vocabulary(SIZE)
TOKENIZER = Tokenizer.from_gguf(
    {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": VOCABULARY.tokens,
        "tokenizer.ggml.scores": VOCABULARY.scores,
        "tokenizer.ggml.token_type": VOCABULARY.types,
        "tokenizer.ggml.bos_token_id": BOS,
        "tokenizer.ggml.eos_token_id": EOS,
        "tokenizer.ggml.unknown_token_id": UNK,
    }
)


def byte_ids(data: bytes) -> list[int]:
    return [TOKENIZER.id_of(f"<0x{byte:02X}>") or 0 for byte in data]


# Bytes that begin, continue, or can never be in UTF-8 come often enough to make every kind of broken character.
tricky = st.sampled_from(byte_ids(b"\x00\x41\x7f\x80\x8f\x9f\xa0\xbf\xc0\xc2\xc3\xe0\xe2\xed\xef\xf0\xf1\xf4\xf5\xff"))
some_ids = st.lists(tricky | st.integers(0, SIZE - 1), max_size=40)


def stream(ids: list[int]) -> list[str]:
    detokenizer = Detokenizer(TOKENIZER)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


@given(some_ids)
@example(byte_ids(b"\xf0\x9f\x98"))
@example(byte_ids(b"\xe2\x82\x41\xf0\x80\x80\x80"))
@example([*byte_ids(b"\xf0\x9f"), EOS, *byte_ids(b"\x98\x8a")])
def test_joined_deltas_are_the_decoded_whole(ids: list[int]) -> None:
    assert "".join(stream(ids)) == TOKENIZER.decode(ids)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581\ufffd")))
def test_text_streams_without_a_broken_character(text: str) -> None:
    deltas = stream(TOKENIZER.encode(text))
    assert "".join(deltas) == text
    assert deltas[-1] == ""
    assert not any("\ufffd" in delta for delta in deltas)


@given(some_ids, some_ids)
def test_what_was_emitted_is_never_taken_back(first: list[int], then: list[int]) -> None:
    """The deltas so far are a beginning of every continuation's text: nothing is emitted too early."""
    detokenizer = Detokenizer(TOKENIZER)
    so_far = "".join(map(detokenizer.push, first))
    assert TOKENIZER.decode(first + then).startswith(so_far)


def test_a_character_comes_with_its_last_byte() -> None:
    family = "👨‍👩‍👧"
    flag = "🇫🇷"
    for text in ("😊", flag, family):
        ids = byte_ids(text.encode())
        deltas = stream(ids)
        at = 0
        for char in text:
            size = len(char.encode())
            assert deltas[at : at + size] == [""] * (size - 1) + [char]
            at += size
        assert deltas[-1] == ""


def test_an_unfinished_character_is_replaced_at_the_end() -> None:
    assert stream(byte_ids(b"A\xf0\x9f\x98")) == ["A", "", "", "", "\ufffd"]
    assert stream(byte_ids(b"\xf0\x9fA")) == ["", "", "\ufffdA", ""]


def test_leading_spaces_are_kept() -> None:
    assert stream([TOKENIZER.id_of(" the") or 0, BOS, TOKENIZER.id_of("  ") or 0]) == [" the", "", "  ", ""]


def test_interleaved_streams_do_not_meet() -> None:
    texts = ["😊", "🇫🇷", "👨‍👩‍👧"]
    rows = [byte_ids(text.encode()) for text in texts]
    streams = [Detokenizer(TOKENIZER) for _ in rows]
    out = ["", "", ""]
    for step in range(max(map(len, rows))):
        for row, ids in enumerate(rows):
            if step < len(ids):
                out[row] += streams[row].push(ids[step])
    assert [text + stream.flush() for text, stream in zip(out, streams, strict=True)] == texts


def test_an_id_outside_the_vocabulary_leaves_the_stream_whole() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    first, second = byte_ids("é".encode())
    assert detokenizer.push(first) == ""
    try:
        detokenizer.push(SIZE)
    except UsageError as error:
        assert str(SIZE) in str(error)  # noqa: PT017 (the state after the error is what is tested)
    assert detokenizer.push(second) == "é"


def test_flush_makes_ready_for_another_sequence() -> None:
    detokenizer = Detokenizer(TOKENIZER)
    detokenizer.push(byte_ids(b"\xf0")[0])
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""
    assert detokenizer.push(byte_ids(b"A")[0]) == "A"
