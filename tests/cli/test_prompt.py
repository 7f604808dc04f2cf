"""Where the prompt comes from: what goes in comes out, or one line says why not."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cabochon.cli import prompt
from cabochon.cli.prompt import read_prompt
from cabochon.errors import UsageError


def read(
    text: str | None = None, *, file: Path | str | None = None, ids: str | None = None, ids_file: Path | None = None
) -> prompt.Prompt:
    return read_prompt(text, None if file is None else str(file), ids, None if ids_file is None else str(ids_file))


@given(st.text(min_size=1).filter(lambda text: text != "-"))
def test_text_is_taken_as_it_is(text: str) -> None:
    assert read(text) == text


@given(st.text(min_size=1))
def test_files_and_standard_input_are_taken_to_their_last_byte(text: str) -> None:
    data = text.encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert read("-") == text
        patch.setattr(prompt, "_contents", lambda path: data)
        assert read(file="any") == text


def test_newlines_of_a_file_are_not_translated(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"a\r\nb\rc\n")
    assert read(file=file) == "a\r\nb\rc\n"


@given(st.lists(st.integers(0, 1 << 40), min_size=1), st.sampled_from([",", ", ", " ,\n"]))
def test_ids_come_back(ids: list[int], separator: str) -> None:
    assert read(ids=separator.join(map(str, ids))) == ids


@pytest.mark.parametrize("space", ["", " \n"])
def test_ids_of_a_file_come_back(tmp_path: Path, space: str) -> None:
    file = tmp_path / "ids.json"
    file.write_text(space + json.dumps([2, 818, 0]) + space)
    assert read(ids_file=file) == [2, 818, 0]


@pytest.mark.parametrize(
    "given", [{}, {"text": "a", "ids": "1"}, {"file": "x", "ids": "1"}, {"text": "-", "file": "x"}]
)
def test_exactly_one_source_is_wanted(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"prompt; give PROMPT, '-' for standard input, --file, --ids or --ids-file"):
        read(**given)  # type: ignore[arg-type]  # whatever is given


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("", "--ids: '' is not a token id"),
        ("1,,2", "--ids: '' is not a token id"),
        ("1,2,", "--ids: '' is not a token id"),
        ("1,x", "--ids: 'x' is not a token id"),
        ("1.0", "--ids: '1.0' is not a token id"),
        ("2 818", "--ids: '2 818' is not a token id"),
        ("1_0,2", "--ids: '1_0' is not a token id"),
        ("\u0663,2", "--ids: '\u0663' is not a token id"),
        ("2,-1", "--ids: id 1 is -1"),
        ("9" * 5000, "--ids: '9999"),
    ],
)
def test_malformed_ids(ids: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        read(ids=ids)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"[1, 2", "not JSON"),
        (b"\xff\xfe\xfd", "not JSON"),
        (b"[" + b"9" * 5000 + b"]", "not JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"ids": [1]}', "holds no list"),
        (b"null", "holds no list"),
        (b"[1, true]", "element 1 is true"),
        (b"[1.0]", "element 0 is 1.0"),
        (b'["1"]', 'element 0 is "1"'),
        (b"[[1]]", "element 0 is [1]"),
        (b"[]", "the prompt is empty"),
        (b"[3, -1]", "id 1 is -1"),
    ],
)
def test_malformed_ids_file(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "ids.json"
    file.write_bytes(content)
    with pytest.raises(UsageError) as error:
        read(ids_file=file)
    assert str(error.value).startswith(f"--ids-file {file}: {message}")


def test_an_empty_prompt_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "empty"
    file.touch()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    sources: dict[str, dict[str, str]] = {
        "PROMPT": {"text": ""},
        str(file): {"file": str(file)},
        "standard input": {"text": "-"},
    }
    for source, one in sources.items():
        with pytest.raises(UsageError) as error:
            read(**one)  # type: ignore[arg-type]  # whatever is given
        assert str(error.value) == f"{source}: the prompt is empty"


@given(st.binary(max_size=20), st.sampled_from([b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\x80"]))
def test_what_is_not_utf8_is_named_by_its_offset(before: bytes, bad: bytes) -> None:
    before = before.decode("utf-8", "ignore").encode()
    data = before + bad
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        patch.setattr(prompt, "_contents", lambda path: data)
        sources: dict[str, dict[str, str]] = {
            "standard input": {"text": "-"},
            "name": {"file": "name"},
            "PROMPT": {"text": data.decode("utf-8", "surrogateescape")},
        }
        for what, one in sources.items():
            with pytest.raises(UsageError) as error:
                read(**one)  # type: ignore[arg-type]  # whatever is given
            assert str(error.value) == f"{what} is not UTF-8: byte 0x{bad[0]:02X} at offset {len(before)}"


def test_a_surrogate_that_was_no_byte_is_refused() -> None:
    with pytest.raises(UsageError, match="PROMPT is not text: character 1 is a lone surrogate"):
        read("a\ud800")


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
        ("a\0b", "embedded null byte"),
    ):
        for option in ("file", "ids_file"):
            with pytest.raises(UsageError) as error:
                read(**{option: path})  # type: ignore[arg-type]  # whatever is given
            assert str(error.value) == f"cannot read {path}: {reason}"


def test_input_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "MAX_BYTES", 1 << 20)
    with pytest.raises(UsageError, match="/dev/zero: more than 1 MiB, too long for a prompt"):
        read(file="/dev/zero")


def test_closed_standard_input_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(UsageError, match="standard input is closed"):
        read("-")


def test_a_terminal_is_told_how_to_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = os.openpty()
    os.write(ours, b"typed\n\x04")
    with open(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        assert read("-") == "typed\n"
    os.close(ours)
    assert capsys.readouterr().err == "reading the prompt from the terminal; Ctrl-D ends it\n"
