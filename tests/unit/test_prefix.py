"""Pages found again by their content: what is reused, what is not, and what is kept longest."""

from __future__ import annotations

import pytest

from cabochon.engine.engine import Engine, pools_for
from cabochon.engine.request import Limits, Request, RequestState
from cabochon.kvcache import prefix as module
from cabochon.kvcache.pages import PagePool
from cabochon.kvcache.prefix import PrefixCache
from cabochon.sampling.history import History
from cabochon.sampling.sampler import sample
from cabochon.testing.fake_model import FakeModel
from cabochon.testing.tiny import tiny_config
from cabochon.types import PAGE, SamplingParams, TokenOut

CONTEXT = 512
WINDOW = 40
"""Reaches over two pages and a part of a third."""

GREEDY = SamplingParams(temperature=0)


def engine_of(
    *,
    pages: tuple[int, int] = (60, 60),
    checkpoint_pages: int = 12,
    max_running: int = 1,
    tenant_pages: int | None = None,
) -> Engine:
    model = FakeModel(tiny_config(layers=3, pattern=3, window=WINDOW), pages=pages)
    pools = pools_for(model.store)
    prefixes = PrefixCache(model.store.layout.groups, pools, "fake", checkpoint_pages, tenant_pages)
    limits = Limits(CONTEXT, model.config.vocab)
    return Engine(model, pools, limits, chunk=64, max_running=max_running, prefixes=prefixes)


def ids_of(start: int, length: int) -> tuple[int, ...]:
    """A text that no other ``start`` begins like."""
    return tuple(6 + (start * 31 + i * i) % 300 for i in range(length))


def run(
    engine: Engine, prompt: tuple[int, ...], tokens: int = 3, tenant: str = "", message_ends: tuple[int, ...] = ()
) -> RequestState:
    """Runs a request to its end, and checks that it gives what it gives alone."""
    state = engine.submit(Request(prompt, GREEDY, tokens, tenant=tenant, message_ends=message_ends))
    for _ in range(1000):
        if engine.idle:
            break
        engine.step()
        engine.check_integrity()
    assert state.tokens == alone(engine, state.request)
    return state


def alone(engine: Engine, request: Request) -> list[TokenOut]:
    model = engine._model
    assert isinstance(model, FakeModel)
    ids, tokens = list(request.prompt), list[TokenOut]()
    while len(tokens) < request.max_tokens:
        tokens.append(
            sample(
                model.expected_logits(ids), request.params, History(ids, len(request.prompt)), model.config.vocab
            ).token
        )
        ids.append(tokens[-1].token_id)
    return tokens


def test_the_next_turn_runs_what_is_new_and_part_of_a_page() -> None:
    engine = engine_of()
    first = run(engine, ids_of(1, 200), 40)
    second = run(engine, (*first.ids, *ids_of(2, 10)))
    assert second.reused == (len(first.ids) - 1) // PAGE * PAGE
    assert len(second.request.prompt) - second.reused <= 10 + PAGE


def test_an_exact_repetition_runs_at_least_one_token() -> None:
    engine = engine_of()
    for length in (PAGE, PAGE + 1, 3 * PAGE):
        run(engine, ids_of(length, length))
        again = run(engine, ids_of(length, length))
        assert again.reused == length - 1


def test_less_than_a_page_is_never_reused() -> None:
    engine = engine_of()
    run(engine, ids_of(1, PAGE - 1), 1)
    assert run(engine, ids_of(1, PAGE - 1)).reused == 0


@pytest.mark.parametrize("parts_at", [130, 159, 160, 161, 191, 192])
def test_a_text_that_parts_within_a_page_begins_with_a_copy_of_it(parts_at: int) -> None:
    engine = engine_of()
    first = ids_of(1, 250)
    run(engine, first, 1)
    other = (*first[:parts_at], 5, *ids_of(2, 20))
    state = run(engine, other)
    # What is held of the sliding pages decides whether the page before can be reached at all.
    assert state.reused in (parts_at, 0)
    again = run(engine, (*first[:parts_at], 4, *ids_of(3, 20)))
    assert again.reused == parts_at


@pytest.mark.parametrize("chunk", [1, 31, 32, 33, 34, 48, 64])
@pytest.mark.parametrize("parts_at", [97, 113, 115, 116, 127, 128])
def test_a_copied_page_needs_no_more_room_than_there_must_be(chunk: int, parts_at: int) -> None:
    """Pools of exactly one context: what the query after the copied keys does not see is not held for it."""
    model = FakeModel(tiny_config(layers=3, pattern=3, window=20), context=256, chunk=chunk)
    pools = pools_for(model.store)
    prefixes = PrefixCache(model.store.layout.groups, pools, "fake", 12)
    engine = Engine(model, pools, Limits(256, model.config.vocab), chunk=chunk, prefixes=prefixes)
    first = ids_of(1, 250)
    for prompt in (first[:140], (*first[:parts_at], 5, *ids_of(2, 120))):
        state = engine.submit(Request(prompt, GREEDY, 2))
        for _ in range(400):
            engine.step()
            engine.check_integrity()
        assert state.tokens == alone(engine, state.request)


def test_a_text_is_looked_up_and_counted_once_however_long_it_waits() -> None:
    engine = engine_of(pages=(40, 20), max_running=4)
    assert engine.prefixes is not None
    states = [engine.submit(Request(ids_of(n, 300), GREEDY, 60)) for n in range(4)]
    begun = []
    admit = engine._scheduler._admit
    # Put in its place for the test.
    engine._scheduler._admit = lambda state: (begun.append(state.number), admit(state))[1]  # type: ignore[func-returns-value]
    while not engine.idle:
        engine.step()
        engine.check_integrity()
    assert [state.tokens for state in states] == [alone(engine, state.request) for state in states]
    assert engine.prefixes.counters.lookups == 4 + engine.pauses
    # Not at each of some two hundred steps: only when pages became free.
    assert len(begun) < 30


def test_where_a_message_ends_another_text_can_go_on() -> None:
    """Sliding pages at the ends of prompts and messages outlast others."""
    for ends, reused in (((), 0), ((200,), 192)):
        engine = engine_of(pages=(12, 100))
        run(engine, (*ids_of(9, 200), *ids_of(1, 150)), message_ends=ends)
        for other in range(2):
            run(engine, ids_of(200 + other, 300), 1)
        assert run(engine, (*ids_of(9, 200), *ids_of(300, 20))).reused == reused


def test_where_a_prompt_ends_another_reply_can_begin() -> None:
    engine = engine_of()
    prompt = ids_of(9, 200)
    run(engine, prompt, 150)
    for other in range(3):
        run(engine, ids_of(200 + other, 60), 1)
    assert run(engine, (*prompt, 5, 6, 7)).reused >= 192


def test_a_tenant_keeps_no_more_than_its_pages() -> None:
    engine = engine_of(tenant_pages=7)
    pools = engine._holdings._pools
    run(engine, ids_of(50, 150), tenant="quiet")
    before = [pool.kept for pool in pools]
    for text in range(6):
        run(engine, ids_of(text, 200), tenant="loud")
        assert all(pool.kept <= 7 + kept for pool, kept in zip(pools, before, strict=True))
    assert run(engine, ids_of(50, 150), tenant="quiet").reused == 128


def test_tenants_share_nothing() -> None:
    engine = engine_of()
    run(engine, ids_of(1, 100), tenant="a")
    assert run(engine, ids_of(1, 100), tenant="b").reused == 0
    assert run(engine, ids_of(1, 100), tenant="a").reused == 96


def test_a_shared_beginning_is_reused_from_the_third_text_on_at_the_latest() -> None:
    """The second text shows where they part; the sliding pages there are kept, whatever comes between."""
    engine = engine_of(pages=(40, 200))
    system = ids_of(9, 200)
    for question in range(2):
        run(engine, (*system, *ids_of(100 + question, 150)))
    for other in range(20):
        run(engine, ids_of(200 + other, 150))
    assert run(engine, (*system, *ids_of(300, 20))).reused == 192


def test_without_checkpoints_a_beginning_is_lost_with_its_sliding_pages() -> None:
    engine = engine_of(pages=(8, 200), checkpoint_pages=0)
    system = ids_of(9, 200)
    run(engine, (*system, *ids_of(100, 150)))
    for other in range(3):
        run(engine, ids_of(200 + other, 150))
    assert run(engine, (*system, *ids_of(300, 20))).reused == 0


def test_checkpoints_keep_within_their_pages() -> None:
    engine = engine_of(checkpoint_pages=5)
    assert engine.prefixes is not None
    for text in range(30):
        run(engine, ids_of(text, 100))
        assert all(pool.protected <= 5 for pool in engine._holdings._pools)


def test_when_memory_is_needed_the_texts_used_longest_ago_go_first() -> None:
    engine = engine_of(pages=(60, 16), checkpoint_pages=0)
    for text in (1, 2, 3):
        run(engine, ids_of(text, 130))  # four pages and a bit each, of sixteen
    assert run(engine, ids_of(1, 130)).reused == 128
    for text in (4, 5):
        run(engine, ids_of(text, 130))
    assert run(engine, ids_of(1, 130)).reused == 128
    assert run(engine, ids_of(2, 130)).reused < 128


def test_texts_that_run_together_share_what_is_stored() -> None:
    engine = engine_of(max_running=3)
    first = engine.submit(Request((*ids_of(1, 130), 7), GREEDY, 30))
    for _ in range(5):
        engine.step()
    second = engine.submit(Request((*ids_of(1, 130), 8), GREEDY, 5))
    while not engine.idle:
        engine.step()
        engine.check_integrity()
    assert second.reused == 128
    for state in (first, second):
        assert state.tokens == alone(engine, state.request)


@pytest.mark.parametrize("name", [b"the same for all", None])
def test_names_alone_are_not_believed(monkeypatch: pytest.MonkeyPatch, name: bytes | None) -> None:
    """Two texts whose pages have one name: the ids tell them apart, and the pages before them."""
    real = module.page_name
    calls: list[int] = []

    def page_name(parent: bytes, ids: tuple[int, ...]) -> bytes:
        calls.append(1)
        return name or real(parent, ())  # by place only

    monkeypatch.setattr(module, "page_name", page_name)
    engine = engine_of()
    first, second = ids_of(1, 70), ids_of(2, 70)
    run(engine, first)
    assert run(engine, second).reused == 0
    mixed = (*second[:PAGE], *first[PAGE:])
    assert run(engine, mixed).reused == 0
    assert calls


def test_what_comes_before_a_page_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that tell a page's own ids only: after another text the same ids have other keys."""
    real = module.page_name
    monkeypatch.setattr(module, "page_name", lambda parent, ids: real(b"", ids))
    engine = engine_of()
    first, second, last = (ids_of(n, PAGE) for n in (1, 2, 3))
    run(engine, (*first, *last, 7))
    run(engine, (*second, 7))
    assert run(engine, (*second, *last, 7)).reused == PAGE


def test_a_page_is_found_again_after_each_of_the_texts_it_follows() -> None:
    engine = engine_of()
    first, second, last = (ids_of(n, PAGE) for n in (1, 2, 3))
    for before in (first, second):
        run(engine, (*before, *last, 7))
    for before in (first, second):
        assert run(engine, (*before, *last, 7)).reused == 2 * PAGE


def test_models_and_tenants_have_names_of_their_own() -> None:
    groups = engine_of()._groups
    names = {
        PrefixCache(groups, [PagePool(4), PagePool(4)], model, 0).begin((1, 2), (), tenant).trail.nodes[0].name
        for model, tenant in (("a", "b"), ("a", "c"), ("d", "b"))
    }
    assert len(names) == 3


def test_an_interruption_forgets_what_is_kept() -> None:
    engine = engine_of()
    run(engine, ids_of(1, 100))
    state = engine.submit(Request(ids_of(1, 100), GREEDY, 30))
    engine.step()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    engine._observer = interrupted
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    engine._observer = None
    assert state.finish_reason == "cancelled"
    engine.check_integrity()
    assert run(engine, ids_of(1, 100)).reused == 0
