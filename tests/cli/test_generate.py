from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import cabochon
from cabochon.cli import stdio
from cabochon.session.sampling_arguments import SamplingArguments
from cabochon.session.session import MAX_TOKENS

from .conftest import Run

PROMPT = "The capital of France is"


@pytest.fixture(scope="module")
def session(tiny: Path) -> cabochon.Session:
    return cabochon.load(tiny)


def test_the_text_is_the_sessions_with_one_newline(run: Run, tiny: Path, session: cabochon.Session) -> None:
    for seed in range(4):
        outcome = run("generate", PROMPT, "--model", tiny, "--seed", str(seed), "--max-tokens", "40")
        expected = session.generate(PROMPT, seed=seed, max_tokens=40)
        assert outcome.code == 0
        assert outcome.out == expected.text + "\n"
        assert f"seed         {seed}\n" in outcome.err
        assert f"ended by     {expected.finish_reason}\n" in outcome.err
        assert f"text         {len(expected.token_ids)} tokens" in outcome.err
        assert f"prompt       {expected.prompt_tokens} tokens" in outcome.err


def test_every_option_reaches_the_session(run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: dict[str, object] = {}
    asked: dict[str, object] = {}

    class StopError(Exception):
        pass

    class Fake:
        def stream(self, prompt: object, **options: object) -> None:
            asked.update(options, prompt=prompt)
            raise StopError

    def load(model: str, **options: object) -> Fake:
        loaded.update(options, model=model)
        return Fake()

    monkeypatch.setattr("cabochon.cli.loading.load", load)
    run("generate", "--ids", "2,5", "--model", "m")
    assert loaded["model"] == "m"
    defaults = {"backend": "auto", "threads": None, "context": None, "chunk": None}
    assert {key: loaded[key] for key in defaults} == defaults
    assert (loaded["activations"], loaded["kv_type"], loaded["whole_context"]) == ("int8x2", "f16", False)
    sampling = dict.fromkeys(SamplingArguments.__annotations__)
    rest = {"stop": (), "ignore_eos": False, "logprobs": None, "loop_guard": 0, "prompt_logprobs": None}
    assert asked == {"prompt": [2, 5], "max_tokens": MAX_TOKENS, **rest, **sampling}

    model = "--backend torch --threads 3 --context 77 --chunk 9 --activations int8 --kv-type bf16"
    engine = "--max-running 3 --kv-memory 64M --speculate 4"
    sampled = "--max-tokens 5 --temperature 0.5 --top-k 7 --top-p 0.25 --min-p 0.125 --seed 18446744073709551615"
    sampled += " --typical-p 0.75 --sampler-order gemma_pytorch --choice 2 --repetition-penalty 1.5"
    sampled += " --presence-penalty -0.5 --frequency-penalty 0.25 --penalty-last-n 30 --dry-multiplier 0.5"
    sampled += " --dry-base 2 --dry-allowed-length 3 --dry-penalty-last-n 40 --xtc-probability 0.5 --xtc-threshold 0.25"
    sampled += " --min-tokens 4 --loop-guard 5 --logit-bias 9=1.5 --logit-bias 4=-1 --bad-word z --bad-word yy"
    run(
        "generate",
        "a",
        *model.split(),
        *engine.split(),
        *sampled.split(),
        "--stop",
        "x",
        "--stop",
        "\n",
        "--ignore-eos",
        "--logprobs",
        "4",
        "--prompt-logprobs",
        "5",
        "--dry-sequence-breaker",
        ":",
        "--dry-sequence-breaker",
        "none",
    )
    others = ("model", "progress", "whole_context", "keep_queries")
    assert {key: loaded[key] for key in loaded if key not in others} == {
        "backend": "torch", "threads": 3, "context": 77, "chunk": 9, "activations": "int8", "kv_type": "bf16",
        "max_running": 3, "kv_memory": 64 << 20, "speculate": 4,
    }  # fmt: skip
    assert asked == {
        "prompt": "a", "max_tokens": 5, "temperature": 0.5, "top_k": 7, "top_p": 0.25, "min_p": 0.125,
        "seed": 2**64 - 1, "stop": ("x", "\n"), "ignore_eos": True, "logprobs": 4, "prompt_logprobs": 5,
        "typical_p": 0.75, "order": "gemma_pytorch", "choice": 2, "repetition_penalty": 1.5, "presence_penalty": -0.5,
        "frequency_penalty": 0.25, "penalty_last_n": 30, "dry_multiplier": 0.5, "dry_base": 2, "dry_allowed_length": 3,
        "dry_penalty_last_n": 40, "xtc_probability": 0.5, "xtc_threshold": 0.25, "min_tokens": 4, "loop_guard": 5,
        "logit_bias": {9: 1.5, 4: -1}, "bad_words": ("z", "yy"), "dry_sequence_breakers": (":", "none"),
    }  # fmt: skip
    run("generate", "a", "--dry-sequence-breaker", "none")
    assert asked["dry_sequence_breakers"] == ()


def test_the_ways_to_choose_change_the_text_as_in_a_session(run: Run, tiny: Path, session: cabochon.Session) -> None:
    options = ["--temperature=0", "--dry-multiplier=0.8", "--repetition-penalty=1.3", "--max-tokens=30"]
    outcome = run("generate", PROMPT, "--model", tiny, *options)
    expected = session.generate(PROMPT, temperature=0, dry_multiplier=0.8, repetition_penalty=1.3, max_tokens=30)
    assert outcome.out == expected.text + "\n"
    assert expected.token_ids != session.generate(PROMPT, temperature=0, max_tokens=30).token_ids


def test_choices_are_written_one_after_the_other(run: Run, tiny: Path, session: cabochon.Session) -> None:
    common = ["generate", PROMPT, "--model", tiny, "--seed", "3", "--max-tokens", "12", "-n", "3", "--logprobs", "0"]
    for options, first in ([], 0), (["--choice", "5", "--max-running", "2"], 5):
        expected = session.generate_choices(PROMPT, 3, seed=3, max_tokens=12, choice=first)
        outcome = run(*common, *options)
        assert outcome.code == 0
        assert outcome.out == "".join(f"--- choice {first + n} ---\n{r.text}\n" for n, r in enumerate(expected))
        assert f"prompt {expected[0].prompt_tokens} tokens, seed 3\n" in outcome.err
        for n, result in enumerate(expected):
            assert re.search(rf"^ *{first + n} +{len(result.token_ids)}  {result.finish_reason}$", outcome.err, re.M)
        assert outcome.err.count("logprob") == 3


def test_choices_in_json_are_one_object(run: Run, tiny: Path, session: cabochon.Session) -> None:
    common = ["generate", PROMPT, "--model", tiny, "--seed", "3", "--max-tokens", "12", "--json"]
    report = run(*common, "-n", "2", "--choice", "1").json
    assert list(report) == ["choices"]
    for index, choice in enumerate(report["choices"], start=1):
        alone = run(*common, "--choice", str(index)).json
        assert choice.pop("choice") == index
        for key in ("timings", "reused_tokens"):
            del choice[key], alone[key]
        assert choice == alone
    assert "text" in run(*common, "-n", "1").json


def test_what_choices_cannot_be_is_refused(run: Run, tiny: Path, tmp_path: Path) -> None:
    for number in ("0", "1025", "x"):
        assert "-n" in run("generate", "a", "--model", tiny, "-n", number).error_line(2)
    path = tmp_path / "a.talk"
    outcome = run("generate", "a", "--model", tiny, "-n", "2", "--save-conversation", path)
    assert "--choices makes several texts" in outcome.error_line(2)


def test_log_probabilities_of_the_prompt(run: Run, tiny: Path, session: cabochon.Session) -> None:
    score = session.score(PROMPT, top_logprobs=2)
    common = ["generate", PROMPT, "--model", tiny, "--seed", "3", "--max-tokens", "4"]
    plain = run(*common, "--json").json
    assert not any(key.startswith("prompt_l") or key in ("prompt_top", "prompt_token_ids") for key in plain)
    asked = run(*common, "--json", "--prompt-logprobs", "0").json
    assert asked.pop("prompt_token_ids") == list(score.token_ids)
    assert asked.pop("prompt_logprobs") == list(score.logprobs)
    for report in (plain, asked):
        del report["timings"]
    assert asked == plain
    tops = run(*common, "--json", "--prompt-logprobs", "2").json["prompt_top"]
    assert score.top is not None
    assert tops[0] is None
    assert tops[1:] == [[list(pair) for pair in top] for top in score.top[1:] if top is not None]
    table = run(*common, "--prompt-logprobs", "1").err
    assert f"{score.logprobs[1]:.4f}" in table
    assert table.count("logprob") == 1


def test_verify_takes_them_too(run: Run, tiny: Path) -> None:
    options = ["--dry-multiplier=0.8", "--xtc-probability=0.5", "--typical-p=0.9", "--sampler-order=gemma_pytorch"]
    outcome = run("verify", PROMPT, "--model", tiny, *options, "--max-tokens", "20", "--json")
    assert outcome.json["equal"] is True


def test_json_is_one_object_with_the_agreed_keys(run: Run, tiny: Path, session: cabochon.Session) -> None:
    common = ["generate", PROMPT, "--model", tiny, "--json", "--max-tokens", "9", "--temperature", "0", "--ignore-eos"]
    outcome = run(*common)
    expected = session.generate(PROMPT, max_tokens=9, temperature=0, ignore_eos=True, logprobs=2)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.count("\n") == 1
    report = outcome.json
    timings = report.pop("timings")
    assert set(timings) == {"load_s", "first_token_s", "prefill_tokens_per_s", "decode_tokens_per_s"}
    assert all(value > 0 for value in timings.values())
    plain = {
        "text": expected.text,
        "token_ids": list(expected.token_ids),
        "logprobs": None,
        "finish_reason": "length",
        "prompt_tokens": expected.prompt_tokens,
        "reused_tokens": 0,
        "model": "Tiny Gemma",
        "seed": None,
    }
    assert report == plain
    assert expected.logprobs is not None
    assert expected.top is not None
    report = run(*common, "--logprobs", "0").json
    del report["timings"]
    assert report == {**plain, "logprobs": list(expected.logprobs)}
    report = run(*common, "--logprobs", "2").json
    assert report["top"] == [[list(pair) for pair in top] for top in expected.top]


def test_a_shown_seed_gives_the_same_text_again(run: Run, tiny: Path) -> None:
    # Hot enough that two texts of 30 tokens are never the same.
    hot = ["--temperature", "9", "--top-k", "0", "--max-tokens", "30", "--ignore-eos"]
    command = ["generate", PROMPT, "--model", tiny, *hot]
    first, other = run(*command), run(*command)
    seed = re.search(r"^seed +(\d+)$", first.err, re.MULTILINE)
    assert seed is not None
    assert run(*command, "--seed", seed[1]).out == first.out
    assert other.out != first.out
    assert run(*command, "--seed", seed[1], "--json").json["seed"] == int(seed[1])


def test_greedy_text_has_no_seed(run: Run, tiny: Path) -> None:
    assert "seed" not in run("generate", PROMPT, "--model", tiny, "--temperature", "0").err


def test_ids_and_files_are_the_same_prompt(run: Run, tiny: Path, session: cabochon.Session, tmp_path: Path) -> None:
    ids = session.tokenize(PROMPT)
    (tmp_path / "ids.json").write_text(str(ids))
    (tmp_path / "text").write_text(PROMPT)
    common = ["--model", tiny, "--temperature", "0", "--max-tokens", "12"]
    expected = run("generate", PROMPT, *common).out
    for source in (
        ["--ids", ",".join(map(str, ids))],
        ["--ids-file", tmp_path / "ids.json"],
        ["--file", tmp_path / "text"],
    ):
        assert run("generate", *source, *common).out == expected


def test_a_prompt_may_begin_with_a_dash(run: Run, tiny: Path, session: cabochon.Session) -> None:
    expected = session.generate("-5 degrees", temperature=0, max_tokens=3).text
    options = ["--model", tiny, "--temperature", "0", "--max-tokens", "3"]
    assert run("generate", *options, "--", "-5 degrees").out == expected + "\n"


def test_log_probabilities_for_people(run: Run, tiny: Path, session: cabochon.Session) -> None:
    command = ["generate", PROMPT, "--model", tiny, "--temperature", "0", "--max-tokens", "5", "--ignore-eos"]
    expected = session.generate(PROMPT, temperature=0, max_tokens=5, ignore_eos=True, logprobs=2)
    assert expected.logprobs is not None
    assert expected.top is not None
    outcome = run(*command, "--logprobs", "2")
    assert outcome.out == expected.text + "\n"
    rows = outcome.err.splitlines()[-5:]
    for row, token, logprob, top in zip(rows, expected.token_ids, expected.logprobs, expected.top, strict=True):
        assert row.split()[1:3] == [str(token), f"{logprob:.4f}"]
        assert all(f"{probability:.4f}" in row for _, probability in top)
    assert "most probable" not in run(*command, "--logprobs", "0").err


def test_a_stop_string_ends_the_text(run: Run, tiny: Path, session: cabochon.Session) -> None:
    text = session.generate(PROMPT, temperature=0, max_tokens=30, ignore_eos=True).text
    stop = text[6:8]
    command = ["generate", PROMPT, "--model", tiny, "--temperature", "0", "--max-tokens", "30", "--ignore-eos"]
    outcome = run(*command, "--stop", "not there", "--stop", stop)
    assert outcome.out == text[: text.index(stop)] + "\n"
    assert "ended by     stop\n" in outcome.err


class Interrupting:
    """Lets some writes through, then Ctrl-C comes."""

    def __init__(self, writes: int) -> None:
        self.left = writes
        self.write = stdio.write

    def __call__(self, text: str) -> None:
        self.left -= 1
        if self.left == -1:
            raise KeyboardInterrupt
        self.write(text)


@pytest.mark.parametrize("writes", [1, 5])
def test_an_interrupted_text_stays(run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    command = ["generate", PROMPT, "--model", tiny, "--temperature", "0", "--max-tokens", "60", "--ignore-eos"]
    whole = run(*command).out
    monkeypatch.setattr(stdio, "write", Interrupting(writes))
    outcome = run(*command)
    assert outcome.code == 0
    assert outcome.out.endswith("\n")
    assert whole.startswith(outcome.out[:-1])
    assert 0 < len(outcome.out) < len(whole)
    assert "ended by     cancelled\n" in outcome.err


def test_interrupted_before_any_text(run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("cabochon.engine.engine.Engine.step", interrupted)
    assert run("generate", PROMPT, "--model", tiny).error_line(1) == "error: cancelled\n"


def test_interrupted_json_is_still_an_object(run: Run, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = cabochon.engine.engine.Engine.step  # type: ignore[attr-defined]  # a module that the package does not export
    steps = []

    def interrupted(engine: object) -> object:
        steps.append(engine)
        if len(steps) == 4:
            raise KeyboardInterrupt
        return step(engine)

    monkeypatch.setattr("cabochon.engine.engine.Engine.step", interrupted)
    outcome = run("generate", PROMPT, "--model", tiny, "--json", "--ignore-eos", "--logprobs", "0")
    assert outcome.code == 0
    assert (outcome.json["finish_reason"], len(outcome.json["token_ids"])) == ("cancelled", 3)
    assert all(math.isfinite(value) for value in outcome.json["logprobs"])
