"""Conversations in files: what an engine stored, another one has again; over a model that tells what it saw."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.engine.engine import Engine, pools_for
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.errors import ContextLengthError, ConversationError, UsageError
from cabochon.kvcache.conversation_file import Origin
from cabochon.kvcache.prefix import PrefixCache
from cabochon.sampling.history import History
from cabochon.sampling.sampler import sample
from cabochon.session.conversations import Conversations
from cabochon.testing.fake_model import FakeModel
from cabochon.testing.tiny import tiny_config
from cabochon.types import PAGE, SamplingParams, TokenOut

CONTEXT = 512
CHUNK = 64
WINDOW = 40
GREEDY = SamplingParams(temperature=0)
CONFIG = tiny_config(layers=3, pattern=3, window=WINDOW)


class Machine:
    """An engine of its own over pages of its own, as in another process."""

    def __init__(
        self,
        *,
        pages: tuple[int, int] = (40, 60),
        checkpoint_pages: int = 12,
        tenant_pages: int | None = None,
        max_running: int = 1,
        origin: Callable[[], Origin] | None = lambda: Origin("fake", "fake"),
        reuse: bool = True,
    ) -> None:
        self.model = FakeModel(CONFIG, pages=pages)
        self.pools = pools_for(self.model.store)
        prefixes = PrefixCache(self.model.store.layout.groups, self.pools, "fake", checkpoint_pages, tenant_pages)
        self.engine = Engine(
            self.model,
            self.pools,
            Limits(CONTEXT, CONFIG.vocab),
            chunk=CHUNK,
            max_running=max_running,
            prefixes=prefixes if reuse else None,
        )
        self.talks = Conversations(self.engine, self.pools, self.model.store, origin)

    def submit(self, prompt: Sequence[int], tokens: int = 3) -> RequestState:
        return self.engine.submit(Request(tuple(prompt), GREEDY, tokens))

    def finish(self, *states: RequestState) -> None:
        """Runs all to their ends, and checks that each gives what it gives alone."""
        while not self.engine.idle:
            self.engine.step()
            self.engine.check_integrity()
        for state in states:
            assert state.tokens == alone(state.request)

    def run(self, prompt: Sequence[int], tokens: int = 3) -> RequestState:
        state = self.submit(prompt, tokens)
        self.finish(state)
        return state

    def load(self, path: Path) -> tuple[int, ...]:
        try:
            return self.talks.load(path)
        finally:
            self.engine.check_integrity()

    @property
    def prefixes(self) -> PrefixCache:
        assert self.engine.prefixes is not None
        return self.engine.prefixes

    @property
    def kept(self) -> list[int]:
        return [pool.kept for pool in self.pools]


def alone(request: Request) -> list[TokenOut]:
    model, ids, tokens = FakeModel(CONFIG), list(request.prompt), list[TokenOut]()
    while len(tokens) < request.max_tokens:
        logits, history = model.expected_logits(ids), History(ids, len(request.prompt))
        tokens.append(sample(logits, request.params, history, CONFIG.vocab).token)
        ids.append(tokens[-1].token_id)
    return tokens


def ids_of(start: int, length: int) -> tuple[int, ...]:
    """A text that no other ``start`` begins like."""
    return tuple(6 + (start * 31 + i * i) % 300 for i in range(length))


def full(tokens: int) -> int:
    return tokens // PAGE * PAGE


@pytest.mark.parametrize("length", [1, 31, 32, 33, 95, 96, 97, 300])
def test_the_next_turn_runs_only_what_is_new(tmp_path: Path, length: int) -> None:
    first, other = Machine(), Machine()
    ids = first.run(ids_of(1, length), 5).ids
    saved = first.talks.save(tmp_path / "talk", ids)
    assert (saved.tokens, saved.stored_tokens) == (len(ids), full(len(ids) - 1))
    assert saved.nbytes == (tmp_path / "talk").stat().st_size
    assert other.load(tmp_path / "talk") == tuple(ids)
    again = other.run((*ids, *ids_of(2, 10)))
    assert again.reused == saved.stored_tokens
    assert other.model.rows_run - 2 <= 10 + PAGE


def test_all_of_a_text_is_saved_that_was_run(tmp_path: Path) -> None:
    """The prompt of a longer text is stored to its last id, though the reply of one that ended here is not."""
    machine = Machine()
    machine.run((*ids_of(1, 96), *ids_of(2, 100)))
    assert machine.talks.save(tmp_path / "talk", ids_of(1, 96)).stored_tokens in (0, 96)
    machine = Machine()
    state = machine.submit(ids_of(1, 96))
    machine.engine.step()
    machine.engine.step()
    assert state.finish_reason is None
    assert machine.talks.save(tmp_path / "talk", ids_of(1, 96)).stored_tokens == 96
    machine.finish(state)


def test_what_is_saved_of_nothing_are_the_ids(tmp_path: Path) -> None:
    first, other = Machine(), Machine()
    first.run(ids_of(1, 200))
    lookups = first.prefixes.counters.lookups
    assert first.talks.save(tmp_path / "talk", ids_of(2, 200)).stored_tokens == 0
    assert first.prefixes.counters.lookups == lookups
    assert other.load(tmp_path / "talk") == ids_of(2, 200)
    assert other.kept == [0, 0]
    assert other.run(ids_of(2, 200)).reused == 0


def test_loaded_again_it_takes_no_more_pages(tmp_path: Path) -> None:
    first, other = Machine(), Machine()
    ids = first.run(ids_of(1, 300)).ids
    first.talks.save(tmp_path / "talk", ids)
    kept = first.kept
    assert first.load(tmp_path / "talk") == tuple(ids)
    assert first.kept == kept
    for _ in range(3):
        other.load(tmp_path / "talk")
        assert other.kept == [2, 9]
    assert other.prefixes.counters.evictions == 0


def test_what_is_held_already_stays_where_it_is(tmp_path: Path) -> None:
    """Also while it is in use by a text that runs, at another place of the same conversation."""
    first, other = Machine(), Machine(max_running=2)
    ids = first.run(ids_of(1, 300)).ids
    first.talks.save(tmp_path / "talk", ids)
    state = other.submit((*ids[:150], *ids_of(3, 30)), 40)
    for _ in range(6):
        other.engine.step()
    used = sum(pool.pages - pool.free for pool in other.pools)
    other.load(tmp_path / "talk")
    assert sum(pool.pages - pool.free for pool in other.pools) == used
    again = other.submit((*ids, 7))
    other.finish(state, again)
    assert again.reused == 288


def test_others_give_way_and_running_ones_do_not(tmp_path: Path) -> None:
    first, other = Machine(), Machine(pages=(12, 20), max_running=2)
    ids = first.run(ids_of(1, 300)).ids
    first.talks.save(tmp_path / "talk", ids)
    for text in range(10, 16):
        other.run(ids_of(text, 150))
    state = other.submit(ids_of(4, 200), 30)
    for _ in range(5):
        other.engine.step()
    other.load(tmp_path / "talk")
    other.finish(state)
    assert other.run((*ids, 7)).reused == 288
    assert other.prefixes.counters.evictions > 0


def test_too_few_free_pages_are_counted(tmp_path: Path) -> None:
    first, other = Machine(), Machine(pages=(12, 17))
    ids = first.run(ids_of(1, 300)).ids
    first.talks.save(tmp_path / "talk", ids)
    state = other.submit(ids_of(4, 280), 40)
    for _ in range(6):
        other.engine.step()
    with pytest.raises(ConversationError) as caught:
        other.load(tmp_path / "talk")
    assert "9 more pages of global layers are needed, and 8 of 17 are free" in str(caught.value)
    other.finish(state)
    other.load(tmp_path / "talk")
    assert other.run((*ids, 7)).reused == 288


def test_it_is_kept_longer_than_other_texts(tmp_path: Path) -> None:
    """Sliding pages at its end are a place to go on from, as after a reply."""
    first, other = Machine(), Machine(pages=(12, 100))
    ids = first.run(ids_of(1, 300)).ids
    first.talks.save(tmp_path / "talk", ids)
    other.load(tmp_path / "talk")
    assert [pool.protected for pool in other.pools] == [2, 0]
    for text in range(10, 12):
        other.run(ids_of(text, 400))
    assert other.run((*ids, 7)).reused == 288


def test_no_more_is_kept_than_a_tenant_may_have(tmp_path: Path) -> None:
    first, other = Machine(), Machine(tenant_pages=5)
    ids = first.run(ids_of(1, 300)).ids
    first.talks.save(tmp_path / "talk", ids)
    other.load(tmp_path / "talk")
    assert other.kept == [2, 5]


def test_it_comes_back_while_a_running_text_takes_the_tenant_over_its_quota(tmp_path: Path) -> None:
    machine = Machine(tenant_pages=9)
    ids = machine.run(ids_of(1, 300)).ids
    machine.talks.save(tmp_path / "talk", ids)
    running = machine.submit(ids_of(2, 200))
    for _ in range(3):
        machine.engine.step()
    assert machine.load(tmp_path / "talk") == tuple(ids)
    machine.finish(running)


def test_a_damaged_file_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = Machine(), Machine()
    ids = first.run(ids_of(1, 300)).ids
    first.talks.save(tmp_path / "talk", ids)
    data = bytearray((tmp_path / "talk").read_bytes())
    data[-100] ^= 1
    (tmp_path / "talk").write_bytes(data)
    evictions = other.prefixes.counters.evictions
    with pytest.raises(ConversationError, match="checksum is wrong"):
        other.load(tmp_path / "talk")
    assert (other.kept, other.prefixes.counters.evictions) == ([0, 0], evictions)
    # Changed after it was found sound: pages have been filled, and none gets a name.
    monkeypatch.setattr("cabochon.kvcache.conversation_file.ConversationReader._check_digest", lambda reader: None)
    with pytest.raises(ConversationError, match="changed while"):
        other.load(tmp_path / "talk")
    assert (other.kept, [pool.free for pool in other.pools]) == ([0, 0], [40, 60])


def test_ids_of_another_vocabulary(tmp_path: Path) -> None:
    machine = Machine()
    machine.talks.save(tmp_path / "talk", [1, CONFIG.vocab])
    with pytest.raises(ConversationError, match=f"talk: conversation: token id must be .* not {CONFIG.vocab}"):
        machine.load(tmp_path / "talk")


def test_what_a_session_cannot_do(tmp_path: Path) -> None:
    without = Machine(reuse=False)
    for act in (lambda: without.talks.save(tmp_path / "talk", [1]), lambda: without.load(tmp_path / "talk")):
        with pytest.raises(UsageError, match="prefix_cache=True"):
            act()
    nameless = Machine(origin=None)
    for act in (lambda: nameless.talks.save(tmp_path / "talk", [1]), lambda: nameless.load(tmp_path / "talk")):
        with pytest.raises(UsageError, match=r"open one with cabochon\.load"):
            act()
    with pytest.raises(ContextLengthError, match="513 tokens, more than the context of 512"):
        Machine().talks.save(tmp_path / "talk", [1] * 513)
    for path in ("", "a\0b", None, 5):
        with pytest.raises(UsageError, match="path"):
            Machine().talks.save(path, [1])  # type: ignore[arg-type]  # wrong on purpose
    assert not list(tmp_path.iterdir())


def test_saved_and_loaded_while_another_thread_runs(tmp_path: Path) -> None:
    machine = Machine(max_running=2, pages=(60, 100))
    ids = machine.run(ids_of(1, 300)).ids
    machine.talks.save(tmp_path / "talk", ids)
    states = [machine.submit(ids_of(text, 150), 40) for text in range(5, 11)]

    def run() -> None:
        for state in states:
            machine.engine.advance(state, 40)

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(30):
        assert machine.talks.load(tmp_path / "talk") == tuple(ids)
        machine.talks.save(tmp_path / "talk", ids)
    thread.join()
    machine.finish(*states)
    assert machine.run((*ids, 7)).reused == 288


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_in_any_order_and_with_few_pages(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Texts that share beginnings, run, saved and loaded on two machines: each generation is as alone."""
    folder = tmp_path_factory.mktemp("talks")
    machines = [
        Machine(pages=(sliding, full_), checkpoint_pages=checkpoints, max_running=2)
        for sliding, full_, checkpoints in data.draw(
            st.tuples(*[st.tuples(st.integers(6, 20), st.integers(17, 30), st.integers(0, 6))] * 2)
        )
    ]
    texts, files, running = [ids_of(n, 1) for n in range(3)], list[Path](), list[RequestState]()
    for step in range(data.draw(st.integers(3, 12))):
        machine = data.draw(st.sampled_from(machines))
        what = data.draw(st.sampled_from(["run", "begin", "save", "load"]))
        if what == "save":
            text = data.draw(st.sampled_from(texts))
            machine.talks.save(folder / str(step), text[: data.draw(st.integers(1, len(text)))])
            files.append(folder / str(step))
        elif what == "load" and files:
            try:
                texts.append(machine.load(data.draw(st.sampled_from(files))))
            except ConversationError:
                assert not machine.engine.idle  # only others' pages can be in the way
        elif what != "load":
            text = data.draw(st.sampled_from(texts))
            prompt = (*text, *ids_of(step, data.draw(st.integers(0, 120))))[: CONTEXT - 40]
            state = machine.submit(prompt, data.draw(st.integers(1, 40)))
            running.append(state)
            if what == "run":
                machine.engine.advance(state, 40)
                texts.append(tuple(state.ids))
        machine.engine.step()
        machine.engine.check_integrity()
    for machine in machines:
        machine.finish()
    for state in running:
        assert state.tokens == alone(state.request)
