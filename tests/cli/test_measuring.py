"""score, verify and bench: what they print is what the session found."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
from cabochon.checkpoint.load import load_checkpoint
from cabochon.cli.bench import peak_memory
from cabochon.ops.machine import available_instruction_sets
from cabochon.trace.variants import CACHED, VARIANTS
from cabochon.trace.verify import Verification

from .conftest import Run

TEXT = "The capital of France is the cat."


@pytest.fixture(scope="module")
def session(tiny: Path) -> cabochon.Session:
    return cabochon.load(tiny)


def test_score_json(run: Run, tiny: Path, session: cabochon.Session) -> None:
    expected = session.score(TEXT, top_logprobs=2)
    assert expected.top is not None
    plain = run("score", TEXT, "--model", tiny, "--json").json
    assert plain == {
        "token_ids": session.tokenize(TEXT),
        "logprobs": list(expected.logprobs),
        "perplexity": expected.perplexity,
    }
    assert plain["logprobs"][0] is None
    assert plain["perplexity"] == pytest.approx(math.exp(-np.mean(plain["logprobs"][1:])))
    report = run("score", TEXT, "--model", tiny, "--json", "--top-logprobs", "2").json
    assert report.pop("top") == [None, *([list(pair) for pair in top] for top in expected.top[1:] if top)]
    assert report == plain


def test_score_for_people(run: Run, tiny: Path, session: cabochon.Session) -> None:
    expected = session.score(TEXT, top_logprobs=1)
    outcome = run("score", TEXT, "--model", tiny, "--top-logprobs", "1")
    assert (outcome.code, outcome.err) == (0, "")
    header, *rows, blank, last = outcome.out.splitlines()
    assert header.split() == ["id", "logprob", "token", "most", "probable"]
    assert blank == ""
    for row, token, logprob in zip(rows, expected.token_ids, expected.logprobs, strict=True):
        assert row.split()[1:3] == [str(token), "-" if logprob is None else f"{logprob:.4f}"]
    assert last == f"perplexity {expected.perplexity:,.4f} over {len(rows) - 1} tokens"


def test_the_reference_backend_agrees(run: Run, tiny: Path, session: cabochon.Session) -> None:
    logprobs = run("score", TEXT, "--model", tiny, "--json", "--backend", "torch", "--threads", "1").json["logprobs"]
    assert logprobs[1:] == pytest.approx(session.score(TEXT).logprobs[1:], abs=1e-3)


def test_one_token_has_no_perplexity(run: Run, tiny: Path) -> None:
    assert run("score", "--ids", "2", "--model", tiny, "--json").json == {
        "token_ids": [2],
        "logprobs": [None],
        "perplexity": None,
    }
    assert "perplexity - over 0 tokens" in run("score", "--ids", "2", "--model", tiny).out


def test_a_perplexity_beyond_numbers_is_null(run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = cabochon.Score(token_ids=(2, 3), logprobs=(None, -1e9), perplexity=math.inf, top=None)
    monkeypatch.setattr(cabochon.Session, "score", lambda *arguments, **options: endless)
    assert run("score", "a", "--model", tiny, "--json").json["perplexity"] is None
    assert "perplexity inf over" in run("score", "a", "--model", tiny).out


@pytest.mark.parametrize("options", [[], ["--chunk", "3"], ["--threads", "2", "--temperature", "0"]])
def test_verify_finds_the_cache_exact(run: Run, tiny: Path, options: list[str]) -> None:
    command = ["verify", TEXT, "--model", tiny, "--max-tokens", "60", "--ignore-eos", "--seed", "5", *options]
    outcome = run(*command, "--json")
    prompt = len(cabochon.load(tiny).tokenize(TEXT))
    assert outcome.code == 0
    assert outcome.json == {
        "equal": True,
        "steps": 60,
        "max_abs_difference": 0.0,
        "tokens_run_cached": prompt + 59,
        "tokens_run_recomputed": prompt + 60,
    }
    shown = run(*command)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.startswith("Equal: in all 60 steps")


def test_verify_notices_a_cache_that_is_not(run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(session: cabochon.Session, prompt: object, **options: object) -> Verification:
        steps = {"steps": 3, "tokens_run_cached": 4, "tokens_run_recomputed": 5, "token_ids": (1, 2, 3)}
        return Verification(equal=False, max_abs_difference=0.25, **steps)  # type: ignore[arg-type]  # fields by name

    monkeypatch.setattr("cabochon.cli.verify.verify", broken)
    outcome = run("verify", TEXT, "--model", tiny)
    assert (outcome.code, outcome.err) == (1, "")
    assert outcome.out.startswith("NOT equal: over 3 steps, logits differ by up to 0.25.")
    outcome = run("verify", TEXT, "--model", tiny, "--json")
    assert outcome.code == 1
    assert (outcome.json["equal"], outcome.json["max_abs_difference"]) == (False, 0.25)


def test_verify_against_other_ways_to_make_the_steps(run: Run, tiny: Path) -> None:
    command = ["verify", TEXT, "--model", tiny, "--max-tokens", "30", "--ignore-eos", "--seed", "5", "--threads", "1"]
    outcome = run(*command, "--against", "all", "--json")
    assert outcome.code == 0
    report = outcome.json
    assert report["as_expected"]
    assert len(report["token_ids"]) == 30
    verdicts = {v["name"]: v["verdict"] for v in (report["cached"], *report["variants"])}
    assert list(verdicts) == ["cached", *VARIANTS]
    assert {verdicts[name] for name in ("cached", "no-cache", "concat")} == {"identical bits"}
    assert {verdicts[name] for name, variant in VARIANTS.items() if not variant.equal} == {"broken"}
    shown = run(*command, "--context", "100", "--against", "concat, wrong-position")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["cached", "concat", "wrong-position"]
    assert len({len(line) for line in lines[:4]}) == 1
    assert "broken from step 1 on, first in layer 0: the key of position" in shown.out
    assert lines[-1] == "As it must be. Equal to the cached loop: concat; broken, as they must be: wrong-position."


def test_verify_against_ends_with_1_if_a_control_does_not_break(
    run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blunt = replace(VARIANTS["empty-cache"], make=CACHED.make)
    monkeypatch.setattr("cabochon.trace.against.VARIANTS", {"empty-cache": blunt})
    outcome = run("verify", TEXT, "--model", tiny, "--max-tokens", "4", "--against", "all")
    assert (outcome.code, outcome.err) == (1, "")
    assert "empty-cache  NOT AS IT SHOULD BE: identical bits" in outcome.out
    assert outcome.out.endswith("Not all came out as they must.\n")


def test_verify_against_what_is_unknown(run: Run, tiny: Path) -> None:
    outcome = run("verify", TEXT, "--model", tiny, "--against", "no-cache,magic")
    assert (outcome.code, outcome.out) == (2, "")
    assert "there is no variant 'magic'; there are no-cache, concat, wrong-position" in outcome.err


def test_bench_measures_what_it_says(run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[int] = []
    generate = cabochon.Session.generate

    def counted(session: cabochon.Session, prompt: list[int], **options: Any) -> cabochon.Generation:
        rows.append(len(prompt))
        result = generate(session, prompt, **options)
        assert len(result.token_ids) == options["max_tokens"]
        # The round that warms up must not count.
        warming = replace(result.timings, decode_tokens_per_s=1e12, prefill_tokens_per_s=1e12)
        return replace(result, timings=warming) if len(rows) <= 3 else result

    monkeypatch.setattr(cabochon.Session, "generate", counted)
    command = ["bench", "--model", tiny, "--prefill", "5,40", "--decode", "6", "--rounds", "1", "--threads", "1"]
    report = run(*command, "--json").json
    assert rows == [5, 40, 16] * 2
    assert set(report["prefill"]) == {"5", "40"}
    assert max(report["decode"]["tokens_per_s"], *report["prefill"].values()) < 1e11
    assert report["threads"] == 1
    assert report["isa"] in available_instruction_sets()
    weights = sum(tensor.data.nbytes for tensor in load_checkpoint(tiny).tensors.values())
    assert report["decode"]["gb_per_s"] == pytest.approx(report["decode"]["tokens_per_s"] * weights / 1e9)
    assert report["load_s"] > 0
    assert report["peak_memory_bytes"] > weights
    shown = run(*command)
    assert (shown.code, shown.err) == (0, "")
    for word in ("decode ", "GB/s", "prefill 5 ", "prefill 40 ", "threads ", "peak memory "):
        assert word in shown.out


def test_macos_counts_memory_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    on_linux = peak_memory()
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert on_linux // 2048 < peak_memory() < on_linux // 512


def test_bench_takes_the_sizes_that_fit(run: Run, tiny: Path) -> None:
    command = ["bench", "--model", tiny, "--decode", "1", "--rounds", "1", "--json", "--context"]
    assert set(run(*command, "600").json["prefill"]) == {"64", "512"}
    assert set(run(*command, "40").json["prefill"]) == {"39"}
