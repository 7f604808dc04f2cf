"""A recorded run: what must be true of every trace, what a trace that was changed shows, and files."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import cabochon
from cabochon.errors import TraceError, UsageError
from cabochon.events import StepRecord
from cabochon.testing.tiny import tiny_config, tiny_weights, write_tiny_gguf
from cabochon.trace.check import faults, replay
from cabochon.trace.explain import Explainer
from cabochon.trace.file import decoded, encoded, load, save
from cabochon.trace.record import record
from cabochon.trace.runs import runs_of, values_of
from cabochon.trace.trace import ChoiceMade, Share, Step, Trace

WINDOW = 20
PROMPTS = ([2, *range(30, 75)], [2, 9], [2, *range(40, 60)])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = tiny_config(layers=4, pattern=3, window=WINDOW)
    return write_tiny_gguf(tmp_path_factory.mktemp("trace") / "tiny.gguf", config, tiny_weights(config))


def opened(path: Path, **options: Any) -> cabochon.Session:
    return cabochon.load(path, **{"context": 128, "max_running": 3, "threads": 1, "prefix_cache": False, **options})


@pytest.fixture(scope="module")
def run(path: Path) -> Trace:
    """Three sequences of unequal lengths, far beyond the window."""
    return record(opened(path, chunk=17), PROMPTS, max_tokens=40, seed=3, ignore_eos=True)


# ---- What is true of every trace ------------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=4),
    tokens=st.integers(1, 40),
    chunk=st.integers(4, 90),
    window=st.sampled_from([4, 20, 33, None]),
    temperature=st.sampled_from([0.0, 1.0]),
)
@settings(max_examples=12, deadline=None)
def test_the_invariants_hold(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    tokens: int,
    chunk: int,
    window: int | None,
    temperature: float,
) -> None:
    config = tiny_config(layers=3, pattern=2, window=window)
    file = write_tiny_gguf(tmp_path_factory.mktemp("law") / "tiny.gguf", config, tiny_weights(config))
    prompts = [[2, *range(10, 9 + length)] for length in lengths]
    with opened(file, chunk=chunk, max_running=len(prompts)) as session:
        trace = record(session, prompts, max_tokens=tokens, temperature=temperature, seed=1, ignore_eos=True)
        texts = [
            session.generate(p, max_tokens=tokens, temperature=temperature, seed=1, ignore_eos=True) for p in prompts
        ]
    assert list(faults(trace)) == []
    assert replay(trace) == tuple(text.text for text in texts)
    assert [end.token_ids for end in trace.end.sequences] == [text.token_ids for text in texts]
    # Once more and slowly: each position once, in order, and each row sees the keys of its window.
    for number, length in enumerate(lengths):
        written = [list[int]() for _ in trace.header.model.groups]
        for share in (share for step in trace.steps for share in step.shares if share.sequence == number):
            for group, kind in enumerate(trace.header.model.groups):
                written[group] += values_of(share.positions).tolist()
                rows = zip(values_of(share.first_key[group]), values_of(share.last_key[group]), strict=True)
                for position, (first, last) in zip(written[group][-len(share.ids) :], rows, strict=True):
                    seen = [key for key in range(position + 1) if kind.window is None or position - key < kind.window]
                    assert (first, last) == (seen[0], seen[-1])
        assert written == [list(range(length + tokens - 1))] * len(written)
    assert trace.end.cost.tokens == sum(length + tokens - 1 for length in lengths)
    assert trace.end.recomputing.tokens == sum(tokens * n + tokens * (tokens - 1) // 2 for n in lengths)
    assert trace.end.counted == trace.end.cost


def test_recomputing_costs_what_the_variant_costs(path: Path) -> None:
    trace = record(
        opened(path, whole_context=True), [PROMPTS[0]], against=["no-cache"], max_tokens=24, seed=2, ignore_eos=True
    )
    (variant,) = trace.variants
    assert (variant.verdict, variant.cost) == ("identical bits", trace.end.recomputing)
    assert [step.cost.tokens for step in variant.steps] == list(range(46, 70))
    assert sum(step.cost.pairs for step in variant.steps) == trace.end.recomputing.pairs
    chosen = [step.shares[0].choices[0].token for step in variant.steps]
    assert chosen == list(trace.end.sequences[0].token_ids)


def test_variants_are_of_the_run_whatever_its_seed(path: Path) -> None:
    """Without a seed each request draws one; the variants must not draw another."""
    trace = record(
        opened(path, whole_context=True),
        [PROMPTS[1]],
        against=["concat"],
        max_tokens=24,
        temperature=9.0,
        ignore_eos=True,
    )
    (variant,) = trace.variants
    assert [step.shares[0].choices[0].token for step in variant.steps] == list(trace.end.sequences[0].token_ids)
    assert [step.shares[0].ids for step in variant.steps][-1][2:] == trace.end.sequences[0].token_ids[:-1]


def test_pages_behind_the_window_are_let_go(run: Trace) -> None:
    held = [share.held_from for step in run.steps for share in step.shares if share.sequence == 0]
    assert held == sorted(held)
    sliding, wide = ([group.window for group in run.header.model.groups].index(w) for w in (WINDOW, None))
    assert held[-1][wide] == 0
    # The last row is that of position 84, which sees the keys from 65 on; their page begins at 64.
    assert held[-1][sliding] == 64


def test_phases_chunks_and_pieces(run: Trace, path: Path) -> None:
    of_first = [share for step in run.steps for share in step.shares if share.sequence == 0]
    assert [(share.phase, len(share.ids)) for share in of_first[:5]] == [
        ("prefill", 17),
        ("prefill", 17),
        ("prefill", 12),
        ("decode", 1),
        ("decode", 1),
    ]
    assert [bool(share.choices) for share in of_first[:4]] == [False, False, True, True]
    tokenizer = opened(path).tokenizer
    named = {i for step in run.steps for share in step.shares for i in share.ids}
    named |= {i for step in run.steps for share in step.shares for c in share.choices for i in c.candidates.ids}
    assert {i: run.pieces[i] for i in named} == {i: tokenizer.piece(i) for i in named}
    assert sum(len(step.pieces) for step in run.steps) + len(run.header.pieces) == len(run.pieces)


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_guesses_and_pauses_change_no_text(path: Path, temperature: float) -> None:
    options: dict[str, Any] = {"max_tokens": 60, "temperature": temperature, "seed": 5, "ignore_eos": True}
    prompts = [[2, *[40, 41, 42] * 9], [2, *[50, 51] * 12], [2, *range(30, 60)]]
    with opened(path) as session:
        plain = record(session, prompts, **options)
    # Too few pages for three such texts: the youngest has to make room, and comes again.
    with opened(path, kv_memory=328 << 10) as session:
        busy = record(session, prompts, speculate=4, **options)
    assert replay(busy) == replay(plain)
    assert busy.end.sequences == plain.end.sequences
    assert any(share.guesses for step in busy.steps for share in step.shares)
    first_rows = [share.positions[0][0] for step in busy.steps for share in step.shares if share.sequence == 2]
    assert first_rows.count(0) > 1


def test_many_candidates_are_not_kept_until_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "top_k": 0, "top_p": 1.0, "seed": 4, "ignore_eos": True}
    with opened(path) as session:
        plain = record(session, [PROMPTS[2]], **options)
        monkeypatch.setattr("cabochon.trace.recorder.FEW", 100)
        monkeypatch.setattr("cabochon.trace.choices.FEW", 100)
        seen = record(session, [PROMPTS[2]], **options)
    assert [step.shares for step in seen.steps] == [step.shares for step in plain.steps]


def test_a_stop_id_ends_a_sequence_and_is_no_part_of_it(path: Path) -> None:
    with opened(path) as session:
        eos = session.config.eos_ids[0]
        trace = record(session, [[2, 9]], max_tokens=20, logit_bias={eos: 100.0}, seed=1)
    choice = trace.steps[-1].shares[0].choices[-1]
    assert (choice.token, choice.ends, choice.text) == (eos, "stop", "")
    assert (trace.end.sequences[0].finish_reason, trace.end.sequences[0].token_ids) == ("stop", ())
    assert (list(faults(trace)), replay(trace)) == ([], ("",))


def test_a_characters_bytes_come_as_one_text(path: Path) -> None:
    with opened(path) as session:
        tokenizer = session.tokenizer
        ids = [i for i in (tokenizer.id_of(f"<0x{byte:02X}>") for byte in "é".encode()) if i is not None]
        word = ids * 3
        trace = record(session, [[2]], max_tokens=6, temperature=0, ignore_eos=True, constraint=Says(word))
    assert [c.text for step in trace.steps for c in step.shares[0].choices] == ["", "é"] * 3
    assert trace.end.sequences[0].text == "ééé"


def test_a_character_that_is_cut_off_comes_at_the_end(path: Path) -> None:
    with opened(path) as session:
        ids = [session.tokenizer.id_of(f"<0x{byte:02X}>") for byte in "é".encode()]
        word = [i for i in ids if i is not None] * 2
        trace = record(session, [[2]], max_tokens=3, temperature=0, ignore_eos=True, constraint=Says(word))
    assert [c.text for step in trace.steps for c in step.shares[0].choices] == ["", "é", "\ufffd"]
    assert replay(trace) == ("é\ufffd",)


class Says:
    """A constraint that leaves one id at each place."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def allowed(self, reply: Any) -> np.ndarray[Any, Any]:
        mask = np.zeros(367, np.bool_)
        mask[self._ids[len(reply)]] = True
        return mask


def test_errors_of_a_run_are_raised(path: Path) -> None:
    with opened(path) as session:
        with pytest.raises(UsageError, match="no prompt"):
            record(session, [])
        with pytest.raises(UsageError, match="no variant 'nothing'"):
            record(session, [[2]], against=["nothing"])
        stream = session.stream([2], max_tokens=5)
        next(stream)
        with pytest.raises(UsageError, match="unfinished"):
            record(session, [[2]])


# ---- Off is off -----------------------------------------------------------------------------------------------------


def test_nothing_is_told_where_nobody_watches(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_made(monkeypatch)
    with opened(path) as session:
        calls = calls_into_trace(lambda: session.generate(PROMPTS[0], max_tokens=12, seed=3, ignore_eos=True))
        assert (calls, made()) == (0, 0)
        trace: list[Trace] = []
        calls = calls_into_trace(lambda: trace.append(record(session, [PROMPTS[0]], max_tokens=12, ignore_eos=True)))
        assert made() == len(trace[0].steps)
        assert calls > len(trace[0].steps)


def count_made(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    made: list[StepRecord] = []

    def counted(*arguments: Any) -> StepRecord:
        made.append(StepRecord(*arguments))
        return made[-1]

    monkeypatch.setattr("cabochon.engine.engine.StepRecord", counted)
    return lambda: len(made)


def calls_into_trace(work: Callable[[], object]) -> int:
    calls = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and "/cabochon/trace/" in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


# ---- Traces that were changed ---------------------------------------------------------------------------------------


def changed(trace: Trace, at: int, change: Callable[[Share], Share]) -> Trace:
    """With the first share of one step changed."""
    step = trace.steps[at]
    new = replace(step, shares=(change(step.shares[0]), *step.shares[1:]))
    return replace(trace, steps=(*trace.steps[:at], new, *trace.steps[at + 1 :]))


def with_choice(**fields: Any) -> Callable[[Share], Share]:
    return lambda share: replace(share, choices=(replace(share.choices[0], **fields), *share.choices[1:]))


SOMEWHERE = 20


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda s: replace(s, positions=((0, 0, 1),)), "positions written"),
        (lambda s: replace(s, first_key=(s.first_key[1], s.first_key[0])), "keys of their window"),
        (lambda s: replace(s, last_key=tuple(((k[0][0] + 1, 0, 1),) for k in s.last_key)), "keys of their window"),
        (lambda s: replace(s, held_from=(96, 0)), "let go"),
        (lambda s: replace(s, slots=(((s.slots[0][0][0] + 1, 0, 1),), s.slots[1])), "another place"),
        (lambda s: replace(s, slots=(((s.slots[0][0][0] + 32, 0, 1),), s.slots[1])), "not there any more"),
    ],
)
def test_faults_are_found(run: Trace, change: Callable[[Share], Share], fault: str) -> None:
    assert any(fault in found for found in faults(changed(run, SOMEWHERE, change)))


def test_a_step_too_few_or_too_many_is_found(run: Trace) -> None:
    fewer = replace(run, steps=(*run.steps[:SOMEWHERE], *run.steps[SOMEWHERE + 1 :]))
    assert any("positions written" in found for found in faults(fewer))
    with pytest.raises(TraceError, match="was given token"):
        replay(fewer)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": "else"}, "is not what its steps chose"),
        ({"draw": 1.5}, "would not have chosen"),
        ({"span": (0.0, 0.0)}, "would not have chosen"),
        ({"token": 3}, "would not have chosen token 3"),
        ({"position": 7}, "of position 7, not of"),
    ],
)
def test_a_choice_that_was_changed_does_not_replay(run: Trace, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        replay(changed(run, SOMEWHERE, with_choice(**fields)))


def test_a_token_that_was_exchanged_does_not_replay(run: Trace) -> None:
    """Everything that names the token is changed alike; but the number does not fall on another one's share."""
    at = next(n for n, step in enumerate(run.steps) if n > 5 and step.shares[0].choices[0].stages[-1].kept > 1)
    choice = run.steps[at].shares[0].choices[0]
    others = [
        (token, probability)
        for token, probability in zip(choice.candidates.ids, choice.candidates.probabilities, strict=True)
        if token != choice.token
    ]
    for token, probability in [others[0], others[-1]]:
        width = (choice.span or (0, 0))[0]
        for span in (choice.span, (width, width + probability), (0.0, probability)):
            with pytest.raises(TraceError, match=r"would not have chosen|was given token"):
                replay(changed(run, at, with_choice(token=token, span=span)))


def test_what_a_step_was_given_must_be_known(run: Trace) -> None:
    other = changed(run, SOMEWHERE, lambda share: replace(share, ids=(share.ids[0] + 1,)))
    with pytest.raises(TraceError, match=r"step 20 was given token \d+, which is not that of position"):
        replay(other)


def test_a_temperature_near_0_leaves_no_infinity_in_a_file(path: Path) -> None:
    with opened(path) as session:
        trace = record(session, [[2, 9]], max_tokens=4, temperature=1e-300, seed=1, ignore_eos=True)
    assert decoded(encoded(trace).splitlines(), "x") == trace


def test_a_greedy_choice_that_was_changed_does_not_replay(path: Path) -> None:
    with opened(path) as session:
        trace = record(session, [[2, 9]], max_tokens=5, temperature=0, ignore_eos=True)
    replay(trace)
    other = trace.steps[1].shares[0].choices[0].candidates.ids[1]
    with pytest.raises(TraceError, match=f"would not have chosen token {other}"):
        replay(changed(trace, 1, with_choice(token=other)))


# ---- Files ----------------------------------------------------------------------------------------------------------


def test_a_file_gives_the_same_trace_and_the_same_text(run: Trace, tmp_path: Path) -> None:
    save(run, tmp_path / "run.jsonl")
    again = load(tmp_path / "run.jsonl")
    assert again == run
    assert replay(again) == tuple(end.text for end in run.end.sequences)
    assert len((tmp_path / "run.jsonl").read_bytes().splitlines()) == len(run.steps) + 2


@pytest.mark.parametrize("version", [0, 2, 99])
def test_other_versions_are_refused(run: Trace, version: int) -> None:
    lines = encoded(run).splitlines()
    lines[0] = lines[0].replace(b'"cabochon_trace":1', f'"cabochon_trace":{version}'.encode())
    # Whatever else may be new in it.
    lines[0] = lines[0].replace(b'"page":32', b'"page":32,"more":1')
    with pytest.raises(TraceError, match=rf"^x: a trace of version {version}, but this Cabochon reads version 1"):
        decoded(lines, "x")


def edit(lines: list[bytes], at: int, old: bytes, new: bytes) -> list[bytes]:
    assert old in lines[at]
    return [*lines[:at], lines[at].replace(old, new, 1), *lines[at + 1 if at >= 0 else len(lines) :]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [], "the file is empty"),
        (lambda lines: lines[:1], "the end is missing"),
        (lambda lines: lines[:-1], "the end is missing"),
        (lambda lines: lines[1:], "line 1 is no trace"),
        (lambda lines: [lines[0], lines[0], *lines[1:]], "not a header, steps"),
        (lambda lines: [*lines[:5], lines[5][:40], *lines[6:]], "line 6 is damaged"),
        (lambda lines: [*lines[:5], b"\xff\xfe", *lines[6:]], "line 6 is damaged"),
        (lambda lines: [b"\x00\x01", *lines[1:]], "line 1 is no trace"),
        (lambda lines: edit(lines, 2, b'"seconds"', b'"secs"'), "line 3 is damaged.*sec"),
        (lambda lines: edit(lines, 2, b'"phase":"prefill"', b'"phase":"other"'), "line 3 is damaged.*other"),
        (lambda lines: edit(lines, 2, b'"sequence":0', b'"sequence":"0"'), "line 3 is damaged.*str"),
    ],
)
def test_files_that_are_no_whole_trace_are_refused(
    run: Trace, change: Callable[[list[bytes]], list[bytes]], message: str
) -> None:
    with pytest.raises(TraceError, match=f"^x: .*{message}"):
        decoded(change(encoded(run).splitlines()), "x")


def rewritten(trace: Trace, path: tuple[str | int, ...], value: Any) -> list[bytes]:
    """The lines of a trace with one value changed, wherever it is: line, then keys and indices."""
    lines = [msgspec.json.decode(line) for line in encoded(trace).splitlines()]
    place: Any = lines
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return [msgspec.json.encode(line) for line in lines]


SHARE = (SOMEWHERE + 1, "shares", 0)
CHOICE = (*SHARE, "choices", 0)
HUGE = 10**12


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ((0, "prompts"), [], "no prompt"),
        ((0, "prompts", 0, "ids"), [], "no prompt, or an empty one"),
        ((0, "page"), 0, "no trace"),
        ((0, "page"), HUGE, "no trace"),
        ((0, "model", "groups", 0, "window"), HUGE, "no trace"),
        ((0, "model", "layers"), HUGE, "not a division of its layers"),
        ((0, "model", "layers"), 0, "not a division of its layers"),
        ((0, "model", "groups"), [], "not a division of its layers"),
        ((0, "model", "groups", 0, "layers"), [0, 1, 2], "not a division of its layers"),
        ((0, "model", "groups", 0, "window"), 0, "damaged|no trace"),
        ((-1, "sequences"), [], "3 prompts came to 0 ends"),
        ((*SHARE[:1], "step"), 3, "not numbered"),
        ((*SHARE[:1], "shares"), [], "rows are not those"),
        ((*SHARE, "sequence"), 3, "no sequence 3"),
        ((*SHARE, "sequence"), -1, "damaged"),
        ((*SHARE, "ids"), [], "rows are not those"),
        ((*SHARE, "guesses"), 1, "no rows but guesses"),
        ((*SHARE, "slots"), [], "not everything is told of 2 groups"),
        ((*SHARE, "held_from"), [0], "not everything is told of 2 groups"),
        ((*SHARE, "positions"), [[0, 1, HUGE]], "not one for each of 1 rows"),
        ((*SHARE, "positions"), [[0, 1, -1], [0, 1, 2]], "not one for each of 1 rows"),
        ((*SHARE, "positions"), [[0, 2**70, 1]], "damaged|not one for each"),
        ((*SHARE, "positions"), [], "not one for each of 1 rows"),
        ((*SHARE, "positions"), [[HUGE, 0, 1]], "not one for each of 1 rows"),
        ((*SHARE, "positions"), [[10**9, 0, 1]], "beyond the text"),
        ((*SHARE, "slots", 0), [[-1, 0, 1]], "not one for each of 1 rows"),
        ((*SHARE, "last_key", 0), [[10**9, 0, 1]], "beyond the text"),
        ((*SHARE, "first_key", 0), [[90, 0, 1]], "less than nothing"),
        ((*CHOICE, "candidates", "ids"), [], "not of one length"),
        ((*CHOICE, "candidates", "removed"), [""], "not of one length"),
        ((*CHOICE, "token"), 366, "is no candidate"),
        ((*SHARE, "attention"), [{"layer": 9, "position": 1, "first_key": 0, "weights": [[1.0]] * 4}], "of layer 9"),
        ((*SHARE, "attention"), [{"layer": 0, "position": 1, "first_key": HUGE, "weights": [[1.0]] * 4}], "other keys"),
    ],
)
def test_numbers_that_do_not_fit_each_other_are_refused(
    run: Trace, where: tuple[str | int, ...], value: Any, message: str
) -> None:
    with pytest.raises(TraceError, match=f"^x: .*({message})"):
        decoded(rewritten(run, where, value), "x")


def test_a_slot_far_away_takes_no_memory(run: Trace) -> None:
    """It is a sound number, so the trace opens; where it leads shows as a fault."""
    trace = decoded(rewritten(run, (*SHARE, "slots", 0), [[2**31 - 2, 0, 1]]), "x")
    assert any("another place" in fault for fault in faults(trace))


@settings(max_examples=150, deadline=None)
@given(
    line=st.sampled_from([0, 1, 3, 4, SOMEWHERE, -1]),
    picks=st.lists(st.integers(0, 9), max_size=9),
    value=st.sampled_from([0, 1, -1, HUGE, 2**70, 0.5, math.inf, "", "x", None, (), {}, ((0, 0, 1),), True]),
)
def test_whatever_is_changed_is_an_error_or_can_be_shown(run: Trace, line: int, picks: list[int], value: Any) -> None:
    """``picks`` lead from the line to what is changed: a field or member each time, as far as there are any."""
    lines: Any = [msgspec.json.decode(text) for text in encoded(run).splitlines()]
    place, key = lines, line
    for pick in picks:
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner:
            break
        place, key = inner, (sorted(inner) if isinstance(inner, dict) else range(len(inner)))[pick % len(inner)]
    place[key] = value
    # Python's own writer, which spells out infinity: a file may hold that, too.
    text = [json.dumps(part).encode() for part in lines]
    try:
        trace = decoded(text, "x")
        list(faults(trace))
        explainer = Explainer(trace)
        shown = [*explainer.head(), *explainer.overview(), *explainer.details(0), *explainer.summary()]
        replay(trace)
    except TraceError:
        return
    assert shown


def test_what_is_too_deep_or_too_large_is_refused(run: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for deep in (b'{"cabochon_trace":1,"a":' + b"[" * 100_000, b'{"a":' + b"[" * 100_000):
        with pytest.raises(TraceError, match="line 1 is nested too deep"):
            decoded([deep], "x")
    save(run, tmp_path / "run.jsonl")
    monkeypatch.setattr("cabochon.trace.file.MOST_BYTES", 1 << 15)
    with pytest.raises(TraceError, match="it is no trace"):
        load(tmp_path / "run.jsonl")
    with pytest.raises(TraceError, match="it is no trace"):
        load("/dev/zero")


def test_files_that_cannot_be_read_or_written(run: Trace, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        load(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match="cannot be written"):
        save(run, tmp_path / "none" / "run.jsonl")


def test_no_field_is_left_out_of_a_file(run: Trace) -> None:
    """What is read must be what was written, field by field: a default would hide a field that is never written."""
    for part in (run.header, run.steps[3], run.steps[3].shares[0], run.end):
        fields = {field.encode_name for field in msgspec.structs.fields(part)}
        assert fields <= set(msgspec.json.decode(msgspec.json.encode(part)))
    assert {Step, Share, ChoiceMade} == {
        type(run.steps[3]),
        type(run.steps[3].shares[0]),
        type(run.steps[9].shares[0].choices[0]),
    }


# ---- Runs -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.integers(-5, 5), st.integers(0, 2**31 - 1)), max_size=40))
def test_runs_give_the_integers_again(values: list[int]) -> None:
    runs = runs_of(np.array(values, np.int32))
    assert values_of(runs).tolist() == values
    assert sum(count for *_, count in runs) == len(values)


def test_a_prefill_of_any_length_is_a_few_runs() -> None:
    assert runs_of(np.arange(1000, dtype=np.int32)) == ((0, 1, 1000),)
    assert runs_of(np.maximum(np.arange(1000, dtype=np.int32) - 511, 0)) == ((0, 0, 512), (1, 1, 488))
    assert runs_of(np.array([7], np.int32)) == ((7, 0, 1),)
    assert runs_of(np.empty(0, np.int32)) == ()
