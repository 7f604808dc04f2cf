"""The cached loop beside other ways to make its steps: what must be equal is, what is wrong on purpose shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.native.kernel_tests import ISAS

import cabochon
from cabochon.errors import UsageError
from cabochon.model.config import GemmaConfig
from cabochon.testing.tiny import tiny_config, tiny_weights, write_tiny_gguf
from cabochon.trace import against, variants
from cabochon.trace.against import TEXTS, Comparison, Outcome, compare
from cabochon.trace.by_hand import PagedText
from cabochon.types import KVType, StepInput

WINDOW = 20
PROMPT = [2, *range(30, 45)]
EQUAL = ("no-cache", "concat")
CONTROLS = ("wrong-position", "empty-cache", "no-mask", "stale-slot", "window-off-by-one")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(layers=4, pattern=3, window=WINDOW)
    return write_tiny_gguf(tmp_path_factory.mktemp("against") / "tiny.gguf", config, tiny_weights(config))


def load(path: Path, **options: object) -> cabochon.Session:
    given = {"context": 96, "whole_context": True, "max_running": TEXTS, "threads": 1, **options}
    return cabochon.load(path, **given)  # type: ignore[arg-type]  # any of its options


def outcomes(comparison: Comparison) -> dict[str, Outcome]:
    return {outcome.name: outcome for outcome in (comparison.cached, *comparison.variants)}


def pairs_of(config: GemmaConfig, prompt: int, tokens: int, *, cached: bool) -> int:
    """Query-key pairs by the formula: in every layer row i sees the last ``window`` of its i + 1 keys; of the last
    layer only the row that gives logits looks at keys."""
    total = 0
    for layer, window in enumerate(config.layer_windows):
        last = layer == config.layers - 1
        for turn in range(tokens):
            end = prompt + turn
            first = end - 1 if last or (cached and turn) else 0
            total += sum(min(i + 1, window or i + 1) for i in range(first, end))
    return total * config.heads


@pytest.mark.parametrize("kv_type", ["f16", "bf16", "f32", "int8"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_equals_are_equal_and_controls_break_in_the_right_layer(
    path: Path, kv_type: KVType, temperature: float
) -> None:
    session, tokens = load(path, kv_type=kv_type), 24
    result = compare(session, PROMPT, max_tokens=tokens, temperature=temperature, seed=4, ignore_eos=True)
    assert result.as_expected
    found = outcomes(result)
    assert list(found) == ["cached", *EQUAL, *CONTROLS]
    for name in ("cached", *EQUAL):
        outcome = found[name]
        assert (outcome.verdict, outcome.same_text, outcome.max_abs_difference) == ("identical bits", True, 0.0)
        assert [outcome.first_step, outcome.first_token, outcome.difference] == [None, None, None]
    broken = {name: found[name] for name in CONTROLS}
    assert {outcome.verdict for outcome in broken.values()} == {"broken"}
    where = {name: (o.first_step, o.difference and o.difference.layer) for name, o in broken.items()}
    # Keys of layer 0 are made of ids and positions alone; what a row sees shows in the layer after.
    assert where == {
        "wrong-position": (1, 0),
        "empty-cache": (1, 1),
        "no-mask": (0, 1),
        "stale-slot": (1, 0),
        "window-off-by-one": (WINDOW + 1 - len(PROMPT), 1),
    }
    position = found["wrong-position"].difference
    assert position is not None
    assert (position.what, position.position) == ("key", len(PROMPT)), "values do not know positions"
    stale = found["stale-slot"].difference
    assert stale is not None
    assert stale.position == len(PROMPT) - 1


def test_costs_are_those_of_the_formulas_and_of_the_native_core(path: Path) -> None:
    session, prompt, tokens = load(path), len(PROMPT), 24
    found = outcomes(compare(session, PROMPT, max_tokens=tokens, temperature=0, ignore_eos=True))
    for outcome in found.values():
        assert outcome.counted == outcome.cost
    position = sum(2 * 2 * kv_heads * session.config.head_dim for kv_heads in [session.config.kv_heads] * 4)
    for name in ("cached", *EQUAL):
        cost, cached = found[name].cost, name == "cached"
        run = prompt + tokens - 1 if cached else tokens * prompt + tokens * (tokens - 1) // 2
        assert cost.tokens == run
        assert cost.pairs == pairs_of(session.config, prompt, tokens, cached=cached)
        assert cost.bytes_written == run * position
        assert cost.bytes_read == cost.pairs // session.config.heads * position // session.config.layers


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("threads", [1, 2])
def test_on_every_instruction_set(path: Path, isa: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CABOCHON_ISA", isa)
    session = load(path, threads=threads, chunk=5)
    assert compare(session, PROMPT, max_tokens=9, seed=1, ignore_eos=True).as_expected


def test_the_torch_backend_rounds(path: Path) -> None:
    session = load(path, backend="torch")
    result = compare(session, PROMPT, max_tokens=12, temperature=0, ignore_eos=True)
    assert result.as_expected
    found = outcomes(result)
    assert {found[name].verdict for name in EQUAL} <= {"identical bits", "rounding"}
    assert {found[name].verdict for name in CONTROLS} == {"broken"}
    assert (
        found["wrong-position"].difference
        == outcomes(compare(load(path), PROMPT, ["wrong-position"], max_tokens=12, temperature=0, ignore_eos=True))[
            "wrong-position"
        ].difference
    )
    assert all(outcome.counted is None for outcome in found.values())


@pytest.mark.parametrize(
    ("prompt", "tokens", "missed"),
    [
        ([2], 1, set(CONTROLS)),
        ([2, 30], 1, set(CONTROLS) - {"no-mask"}),
        ([2], 3, {"no-mask", "stale-slot", "window-off-by-one"}),
        ([2, *range(30, 49)], 1, set(CONTROLS) - {"no-mask"}),
        ([2, *range(30, 49)], 2, set()),
    ],
)
def test_what_a_run_is_too_short_for_is_not_reached(
    path: Path, prompt: list[int], tokens: int, missed: set[str]
) -> None:
    result = compare(load(path), prompt, max_tokens=tokens, temperature=0, ignore_eos=True)
    assert result.as_expected
    assert {o.name for o in result.variants if o.verdict == "not reached"} == missed
    assert all(o.verdict == "broken" for o in result.variants if o.name in set(CONTROLS) - missed)


def test_one_layer_and_a_prompt_of_one_id_again_and_again(tmp_path: Path) -> None:
    config = tiny_config(layers=1, pattern=2, window=4)
    session = load(write_tiny_gguf(tmp_path / "one.gguf", config, tiny_weights(config)))
    result = compare(session, [2] * 6, max_tokens=6, temperature=0, ignore_eos=True)
    assert result.as_expected
    found = outcomes(result)
    assert found["no-mask"].verdict == "not reached"
    assert found["stale-slot"].verdict == found["window-off-by-one"].verdict == "broken"
    assert found["window-off-by-one"].difference is None, "no later layer stores anything"


def test_a_text_that_the_model_ends_is_compared_to_its_end(path: Path) -> None:
    session = load(path)
    plain = session.generate(PROMPT, max_tokens=20, temperature=0, ignore_eos=True)
    session.config = replace(session.config, eos_ids=(plain.token_ids[7],))
    result = compare(session, PROMPT, ["concat"], max_tokens=20, temperature=0)
    end = plain.token_ids.index(plain.token_ids[7])
    assert result.token_ids == plain.token_ids[:end]
    assert result.cached.cost.tokens == len(PROMPT) + end, "the turn that chose the end ran as well"
    assert result.as_expected


def test_what_should_be_equal_and_is_not_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(variants.VARIANTS["concat"], make=variants.VARIANTS["wrong-position"].make)
    monkeypatch.setattr(against, "VARIANTS", {"concat": wrong})
    result = compare(load(path), PROMPT, max_tokens=5, ignore_eos=True)
    assert not result.as_expected
    assert result.variants[0].verdict == "broken"


def test_a_control_that_changes_nothing_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blunt = replace(variants.VARIANTS["no-mask"], make=variants.CACHED.make)
    monkeypatch.setattr(against, "VARIANTS", {"no-mask": blunt})
    result = compare(load(path), PROMPT, max_tokens=5, ignore_eos=True)
    assert not result.as_expected
    assert result.variants[0].verdict == "identical bits"


def test_pages_go_back_whatever_happens(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = load(path)
    want = session.generate(PROMPT, max_tokens=5, temperature=0).token_ids

    def broken(text: PagedText, turn: variants.Turn, stranger: variants.Stranger) -> list[StepInput]:
        raise RuntimeError("in the middle")

    monkeypatch.setattr(against, "VARIANTS", {"x": replace(variants.VARIANTS["concat"], make=broken)})
    for _ in range(4):
        with pytest.raises(RuntimeError, match="in the middle"):
            compare(session, PROMPT, max_tokens=5)
    assert session.generate(PROMPT, max_tokens=5, temperature=0).token_ids == want


def test_unknown_names_and_too_little_room_are_refused(path: Path) -> None:
    session = load(path)
    with pytest.raises(UsageError, match="there is no variant 'cocnat'; there are no-cache, concat, "):
        compare(session, PROMPT, ["cocnat"])
    with pytest.raises(UsageError, match="whole_context"):
        compare(load(path, whole_context=False, chunk=8), PROMPT, max_tokens=30)
    with session.stream(PROMPT, ignore_eos=True) as stream:
        next(iter(stream))
        with pytest.raises(UsageError, match="unfinished generation"):
            compare(session, PROMPT, max_tokens=3)
