"""Every value that cannot be is refused with one line that names the option and the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from cabochon.ops.cpus import MAX_THREADS

from .conftest import Run

NUMBERS = {
    "--temperature": ["-1", "-0.001", "nan", "-nan", "inf", "-inf", "hot", ""],
    "--top-k": ["-1", "1.5", "nan", "", "99999999999999999999"],
    "--top-p": ["0", "-0.5", "1.01", "nan", "inf", "x"],
    "--min-p": ["-0.1", "1", "1.5", "nan", "x"],
    "--seed": ["-1", "18446744073709551616", "0.5", "x"],
    "--typical-p": ["0", "-0.5", "1.01", "nan", "x"],
    "--choice": ["-1", "2147483648", "x"],
    "--repetition-penalty": ["0", "-1", "101", "nan", "x"],
    "--presence-penalty": ["-101", "101", "nan", "x"],
    "--frequency-penalty": ["-101", "101", "inf", "x"],
    "--penalty-last-n": ["-1", "1.5"],
    "--dry-multiplier": ["-0.1", "101", "nan"],
    "--dry-base": ["0.9", "101", "x"],
    "--dry-allowed-length": ["0", "x"],
    "--dry-penalty-last-n": ["-1", "x"],
    "--xtc-probability": ["-0.1", "1.1", "nan"],
    "--xtc-threshold": ["-0.1", "1.1", "nan"],
    "--min-tokens": ["-1", "x"],
    "--loop-guard": ["-1", "1001", "x"],
    "--max-tokens": ["0", "-1", "1.5", "nan", "many", "99999999999"],
    "--threads": ["0", "-2", "two", "1.5", "100000"],
    "--context": ["0", "-4096", "4k", "99999999999"],
    "--chunk": ["0", "-1", "x"],
    "--logprobs": ["-1", "x"],
    "--top-logprobs": ["-1", "x"],
    "--decode": ["0", "x"],
    "--rounds": ["0", "-3"],
    "--prefill": ["0", "", "512,", "512,x", "-1"],
}
CHOICES = ("--backend", "--activations", "--kv-type", "--sampler-order")
COMMAND_OF = {"--top-logprobs": "score", "--decode": "bench", "--rounds": "bench", "--prefill": "bench"}


@pytest.mark.parametrize(("option", "value"), [(option, value) for option in NUMBERS for value in NUMBERS[option]])
def test_numbers_out_of_range(run: Run, option: str, value: str) -> None:
    command = COMMAND_OF.get(option, "generate")
    prompt = [] if command == "bench" else ["a"]
    # There is no such model: the value is judged first.
    line = run(command, *prompt, "--model", "/none", f"{option}={value}").error_line(2)
    assert f"'{option}'" in line
    assert value.rsplit(",")[-1] in line


def test_the_most_threads_are_those_of_load(run: Run) -> None:
    arguments = ["generate", "a", "--model", "/none"]
    assert "/none" in run(*arguments, f"--threads={MAX_THREADS}").error_line(1)
    assert "'--threads': " in run(*arguments, f"--threads={MAX_THREADS + 1}").error_line(2)


@pytest.mark.parametrize("option", CHOICES)
@pytest.mark.parametrize("value", ["", "best", "INT8", "f64"])
def test_unknown_choices(run: Run, option: str, value: str) -> None:
    line = run("generate", "a", "--model", "/none", f"{option}={value}").error_line(2)
    assert f"'{option}': '{value}' is not one of " in line


@pytest.mark.parametrize("option", ["--stop", "--bad-word", "--dry-sequence-breaker"])
@pytest.mark.parametrize("value", ["", "a\udcff"])
def test_texts_that_cannot_occur(run: Run, option: str, value: str) -> None:
    assert f"'{option}'" in run("generate", "a", "--model", "/none", option, value).error_line(2)


@pytest.mark.parametrize("value", ["", "5", "5=", "=1", "-1=2", "x=1", "5=x", "5=nan", "5=1000.5", "5=1=2"])
def test_biases_that_cannot_be(run: Run, value: str) -> None:
    assert "'--logit-bias'" in run("generate", "a", "--model", "/none", "--logit-bias", value).error_line(2)


def test_two_biases_of_one_token(run: Run) -> None:
    biases = ["--logit-bias", "5=1", "--logit-bias", "5=2"]
    assert "'--logit-bias'" in run("generate", "a", "--model", "/none", *biases).error_line(2)


@pytest.mark.parametrize("command", ["generate", "score", "verify"])
@pytest.mark.parametrize("prompt", [[], [""], ["a", "--ids", "2"], ["a", "b"], ["--ids", "2,x"], ["--file", "/none"]])
def test_prompts_that_cannot_be(run: Run, command: str, prompt: list[str]) -> None:
    run(command, *prompt, "--model", "/none").error_line(2)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        *(
            ("score", option)
            for option in ("--temperature=1", "--max-tokens=3", "--logprobs=1", "--seed=1", "--stop=x")
        ),
        *(("verify", option) for option in ("--stop=x", "--logprobs=1", "--top-logprobs=1")),
        *(("generate", option) for option in ("--top-logprobs=1", "--rounds=2")),
        *(("bench", option) for option in ("--temperature=1", "--max-tokens=3", "--ids=2")),
        *(("inspect", option) for option in ("--threads=1", "--context=5", "--activations=int8")),
        *(("doctor", option) for option in ("--model=demo", "--threads=1")),
    ],
)
def test_an_option_that_a_command_does_not_honour_is_refused(run: Run, command: str, option: str) -> None:
    name = option.partition("=")[0]
    prompt = ["a"] if command in ("score", "verify", "generate") else []
    assert name in run(command, *prompt, option).error_line(2)


@pytest.mark.parametrize("command", ["generate", "score", "verify"])
class TestWhatOnlyTheModelKnows:
    def test_ids_out_of_range(self, run: Run, tiny: Path, command: str) -> None:
        for token in (367, 262144, 1 << 70):
            assert str(token) in run(command, "--ids", f"2,{token}", "--model", tiny).error_line(2)

    def test_a_prompt_longer_than_the_context(self, run: Run, tiny: Path, command: str) -> None:
        ids = ",".join(["9"] * 25)
        line = run(command, "--ids", ids, "--model", tiny, "--context", "20").error_line(2)
        assert "25" in line
        assert "20" in line

    def test_a_context_longer_than_the_models(self, run: Run, tiny: Path, command: str) -> None:
        line = run(command, "a", "--model", tiny, "--context", "2049").error_line(2)
        assert "2049" in line
        assert "2048" in line

    def test_a_mode_of_the_other_backend(self, run: Run, tiny: Path, command: str) -> None:
        line = run(command, "a", "--model", tiny, "--backend", "torch", "--activations", "int8").error_line(2)
        assert "activations int8" in line


def test_log_probabilities_beyond_the_vocabulary(run: Run, tiny: Path) -> None:
    assert "logprobs" in run("generate", "a", "--model", tiny, "--logprobs", "368").error_line(2)
    assert "logprobs" in run("score", "a", "--model", tiny, "--top-logprobs", "368").error_line(2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--logit-bias", "367=1"], "logit_bias: token id"),
        (["--dry-sequence-breaker", "no such token"], "dry_sequence_breakers: no token"),
        (["--min-tokens", "9", "--max-tokens", "5"], "min_tokens"),
        (["--loop-guard", "1"], "loop_guard"),
    ],
)
def test_ways_to_choose_that_cannot_be(run: Run, tiny: Path, options: list[str], words: str) -> None:
    assert words in run("generate", "a", "--model", tiny, *options).error_line(2)


def test_sizes_beyond_the_context(run: Run, tiny: Path) -> None:
    assert "--prefill 50" in run("bench", "--model", tiny, "--context", "50", "--prefill", "8,50").error_line(2)
    assert "--decode 34" in run("bench", "--model", tiny, "--context", "50", "--decode", "34").error_line(2)
