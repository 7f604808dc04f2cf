"""Files of conversations: what is written is read, and nothing else is taken."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.errors import ConversationError
from cabochon.kvcache.conversation_file import VERSION, Origin, new_file, open_conversation, write_conversation
from cabochon.kvcache.groups import KVGroup, KVLayout
from cabochon.kvcache.store import KVStore
from cabochon.types import PAGE, KVType

GROUPS = (KVGroup(40, 1, 6, (0, 2)), KVGroup(None, 2, 4, (1,)))
ORIGIN = Origin("a hash", "native int8x2")
IDS = tuple(range(7, 7 + 4 * PAGE + 5))


def store_of(kv_type: KVType = "f16", groups: tuple[KVGroup, ...] = GROUPS, seed: int = 0) -> KVStore:
    """A store of seven pages of random bytes in each group."""
    layers = sorted((layer, index) for index, group in enumerate(groups) for layer in group.layers)
    store = KVStore(KVLayout(groups, tuple(index for _, index in layers)), (7,) * len(groups), kv_type)
    random = np.random.default_rng(seed)
    for group in range(len(groups)):
        for page in range(7):
            for part in store.page(group, page):
                part[:] = random.integers(0, 256, len(part), np.uint8)
    return store


def held_of(pages: int, groups: Sequence[KVGroup] = GROUPS) -> list[list[int]]:
    return [list(range(pages - group.first_page(pages))) for group in groups]


def write(
    path: Path, store: KVStore | None = None, ids: Sequence[int] = IDS, pages: int = 4, origin: Origin = ORIGIN
) -> int:
    store = store or store_of()
    with new_file(path) as file:
        return write_conversation(file, store, origin, ids, pages, held_of(pages, store.layout.groups))


def read(
    path: Path, store: KVStore | None = None, origin: Origin = ORIGIN, context: int = 500
) -> tuple[tuple[int, ...], list[bytes]]:
    """The ids and each part of each page."""
    store = store or store_of(seed=1)
    parts = []
    with open_conversation(path, store, origin, context) as file:
        for group, kv in enumerate(store.layout.groups):
            for _ in range(file.pages - kv.first_page(file.pages)):
                for part in store.page(group, 0):
                    file.read(part)
                    parts.append(part.tobytes())
        file.finish()
    return file.ids, parts


def parts_of(store: KVStore, pages: int) -> list[bytes]:
    groups = enumerate(held_of(pages, store.layout.groups))
    return [part.tobytes() for group, held in groups for page in held for part in store.page(group, page)]


def sealed(data: bytes) -> bytes:
    return data + hashlib.sha256(data).digest()


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(ConversationError) as caught:
        read(path, **options)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    assert len(line) < 600
    return line


@pytest.mark.parametrize("kv_type", ["f16", "bf16", "f32", "int8"])
@pytest.mark.parametrize("pages", [0, 1, 2, 4])
def test_what_is_written_is_read(tmp_path: Path, kv_type: KVType, pages: int) -> None:
    store = store_of(kv_type)
    size = write(tmp_path / "talk", store, pages=pages)
    assert size == (tmp_path / "talk").stat().st_size
    assert read(tmp_path / "talk", store_of(kv_type, seed=1)) == (IDS, parts_of(store, pages))


def test_the_format_is_the_one_described(tmp_path: Path) -> None:
    """Put together here from the description alone."""
    store = store_of("int8")
    header = json.dumps(
        {
            "model": "a hash",
            "arithmetic": "native int8x2",
            "kv_type": "int8",
            "groups": [[40, 1, 6, [0, 2]], [None, 2, 4, [1]]],
            "tokens": len(IDS),
            "pages": 4,
        }
    ).encode()
    data = b"Cabochon talk\r\n\x1a" + struct.pack("<II", VERSION, len(header)) + header
    data += b"".join(struct.pack("<i", token) for token in IDS)
    for layers, pages in (((0, 2), (0, 1)), ((1,), (0, 1, 2, 3))):
        for page in pages:
            for layer in layers:
                kv = store.layers[layer]
                assert kv.key_scales is not None
                assert kv.value_scales is not None
                for array in (kv.keys, kv.values, kv.key_scales, kv.value_scales):
                    data += array[page].tobytes()
    write(tmp_path / "talk", store)
    assert (tmp_path / "talk").read_bytes() == sealed(data)


@pytest.mark.parametrize(("window", "pages", "first"), [(1, 3, 3), (2, 3, 2), (33, 3, 2), (34, 3, 1), (None, 3, 0)])
def test_the_first_page_that_the_next_query_sees(window: int | None, pages: int, first: int) -> None:
    group = KVGroup(window, 1, 4, (0,))
    query = pages * PAGE
    seen = [key for key in range(query) if window is None or key > query - window]
    assert group.first_page(pages) == first == (min(seen) // PAGE if seen else pages)


# ---- What is refused ----


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("talk") / "talk"
    write(path)
    return path.read_bytes()


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_anywhere_is_seen(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(whole) - 1) | st.integers(0, 400))
    changed = bytearray(whole)
    changed[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / "changed"
    path.write_bytes(changed)
    line = refusal(path)
    assert ("not a saved" if at < 16 else "in format" if at < 20 else "damaged") in line


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_bytes_missing_or_added_are_seen(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: st.DataObject
) -> None:
    length = data.draw(st.integers(0, len(whole) - 1) | st.integers(0, 60))
    path = tmp_path_factory.getbasetemp() / "cut"
    path.write_bytes(whole[:length])
    assert ("not a saved" if length < 16 else "damaged") in refusal(path)
    more = data.draw(st.binary(min_size=1, max_size=100))
    path.write_bytes(whole + more)
    assert "damaged" in refusal(path)
    path.write_bytes(sealed(whole[:-32] + more))
    assert "length" in refusal(path)


def test_another_model_or_way_to_run_it(tmp_path: Path) -> None:
    path = tmp_path / "talk"
    write(path)
    assert "another model" in refusal(path, origin=Origin("other", "native int8x2"))
    line = refusal(path, origin=Origin("a hash", "torch"))
    assert "'native int8x2', here it is 'torch'" in line
    for kv_type in ("f32", "bf16", "int8"):
        assert f"'f16', here it is '{kv_type}'" in refusal(path, store=store_of(kv_type))
    for groups in (
        (KVGroup(41, 1, 6, (0, 2)), GROUPS[1]),
        (KVGroup(40, 2, 3, (0, 2)), GROUPS[1]),
        (KVGroup(40, 1, 6, (0, 1)), KVGroup(None, 2, 4, (2,))),
        GROUPS[::-1],
    ):
        assert "share pages in another way" in refusal(path, store=store_of(groups=groups))
    assert "context is 132: load" in refusal(path, context=132)
    assert read(path, context=133)[0] == IDS


def header_of(changes: dict[str, Any]) -> bytes:
    header = {
        "model": ORIGIN.model,
        "arithmetic": ORIGIN.arithmetic,
        "kv_type": "f16",
        "groups": [[g.window, g.kv_heads, g.head_dim, list(g.layers)] for g in GROUPS],
        "tokens": 3,
        "pages": 0,
        **changes,
    }
    return json.dumps(header).encode()


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b"{",
        b"[" * 100_000,
        b'{"tokens": ' + b"9" * 10_000 + b"}",
        header_of({"tokens": 2**31}),
        header_of({"tokens": 10**15, "pages": 10**13}),
        header_of({"tokens": 499, "pages": 15}),
        header_of({"pages": 1}),
        header_of({"pages": -1}),
        header_of({"tokens": 0}),
        header_of({"tokens": True}),
        header_of({"tokens": 3.0}),
        header_of({"tokens": "3"}),
        header_of({"tokens": None}),
        header_of({"tokens": 1e400}),
        header_of({"groups": []}),
        header_of({"groups": [[40, 1, 6, list(range(10**5))]]}),
        header_of({"model": ["x" * 10**5]}),
    ],
)
def test_a_header_of_bad_will_is_refused_without_much_memory(tmp_path: Path, header: bytes) -> None:
    """Each file's checksum is right."""
    path = tmp_path / "talk"
    start = b"Cabochon talk\r\n\x1a" + struct.pack("<II", VERSION, len(header))
    path.write_bytes(sealed(start + header + bytes(12)))
    store = store_of(seed=1)
    tracemalloc.start()
    refusal(path, store=store)
    assert tracemalloc.get_traced_memory()[1] < 24 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("size", [2**32 - 1, 2**31, 1 << 21, 13])
def test_a_header_longer_than_can_be(tmp_path: Path, size: int) -> None:
    path = tmp_path / "talk"
    path.write_bytes(sealed(b"Cabochon talk\r\n\x1a" + struct.pack("<II", VERSION, size) + bytes(12)))
    assert "damaged" in refusal(path)


def test_what_changes_while_it_is_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "talk"
    write(path)
    store = store_of(seed=1)
    with open_conversation(path, store, ORIGIN, 500) as file, path.open("r+b") as other:
        other.seek(-40, os.SEEK_END)
        other.write(b"x")
        other.flush()
        for group, held in enumerate(held_of(4)):
            for page in held:
                for part in store.page(group, page):
                    file.read(part)
        with pytest.raises(ConversationError, match="changed while"):
            file.finish()
    with open_conversation(write_again(path), store, ORIGIN, 500) as file, path.open("r+b") as other:
        other.truncate(900)
        with pytest.raises(ConversationError, match="shorter while"):
            file.read(np.empty(20_000, np.uint8))  # more than may have been read ahead


def write_again(path: Path) -> Path:
    write(path)
    return path


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "nothing")
    assert "not a regular file" in refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")
    assert "cannot be read" in refusal(tmp_path / ("x" * 300))


# ---- Writing ----


def failing_fsync(handle: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupted_fsync(handle: int) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("fsync", "error"), [(failing_fsync, ConversationError), (interrupted_fsync, KeyboardInterrupt)]
)
def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: Callable[[int], None], error: type[BaseException]
) -> None:
    path = tmp_path / "talk"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(error) as caught:
        write(path)
    assert error is KeyboardInterrupt or str(caught.value) == f"{path}: cannot be written (No space left on device)"
    assert [file.name for file in tmp_path.iterdir()] == ["talk"]
    assert path.read_bytes() == b"old"


def test_a_file_is_replaced_only_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "talk", []
    write(path, ids=IDS[:8], pages=0)
    old = path.read_bytes()

    def looking(handle: int) -> None:
        others = [file for file in tmp_path.iterdir() if file != path]
        seen.append((path.read_bytes() == old, os.fstat(handle).st_size == others[0].stat().st_size > len(old)))

    monkeypatch.setattr(os, "fsync", looking)
    write(path)
    assert seen == [(True, True)]
    assert read(path)[0] == IDS


def test_an_interruption_as_soon_as_there_is_a_file_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def interrupted(*arguments: Any) -> int:
        os.close(opened(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "talk"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, reason in (
        (tmp_path / "no" / "folder", "cannot be written (No such file or directory)"),
        (tmp_path, "not a regular file"),
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path / ("x" * 300), "cannot be written (File name too long)"),
    ):
        with pytest.raises(ConversationError) as caught:
            write(path)
        assert str(caught.value) == f"{path}: {reason}"
    assert [file.name for file in tmp_path.iterdir()] == ["pipe"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("talk")
    write(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert read(tmp_path / "talk")[0] == IDS
