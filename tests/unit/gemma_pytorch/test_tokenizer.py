"""Both kinds of tokenizer files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tests.unit.gemma_pytorch.conftest import CONFIG

from cabochon.compat.gemma_pytorch.from_gguf import get_config_for_gguf
from cabochon.compat.gemma_pytorch.model import GemmaForCausalLM
from cabochon.compat.gemma_pytorch.tokenizer import Tokenizer
from cabochon.errors import CheckpointError, UsageError
from cabochon.testing.vocabulary import BOS, END_OF_TURN, EOS, PAD, START_OF_TURN

WORDS = ["the capital of France is Paris", "once upon a time in a village by the sea", "red and yellow and blue"]


def trained(path: Path, **settings: Any) -> Path:
    """A SentencePiece model laid out as Gemma's."""
    model = io.BytesIO()
    fields: dict[str, Any] = {
        "vocab_size": 340,
        "model_type": "bpe",
        "byte_fallback": True,
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
        "normalization_rule_name": "identity",
        "pad_id": PAD,
        "eos_id": EOS,
        "bos_id": BOS,
        "unk_id": 3,
        "user_defined_symbols": ["<start_of_turn>"],
        "minloglevel": 9,
    }
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(WORDS * 5), model_writer=model, **{**fields, **settings}
    )
    path.write_bytes(model.getvalue())
    return path


def test_a_sentencepiece_model(tmp_path: Path) -> None:
    tokenizer = Tokenizer(trained(tmp_path / "tokenizer.model"))
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.bos_id, tokenizer.n_words) == (PAD, EOS, BOS, 340)
    assert tokenizer.sp_model is not None
    plain = tokenizer.sp_model.EncodeAsIds("the capital é")
    assert tokenizer.encode("the capital é") == [BOS, *plain]
    assert tokenizer.encode("the capital é", bos=False, eos=True) == [*plain, EOS]
    assert tokenizer.decode(plain) == "the capital é"
    assert tokenizer.decode([]) == ""
    assert tokenizer.encode("<start_of_turn>", bos=False) == [tokenizer.sp_model.PieceToId("<start_of_turn>")]


def test_a_model_with_a_sentencepiece_model(tmp_path: Path, path: Path) -> None:
    config = get_config_for_gguf(path, "float32")
    config.tokenizer = str(trained(tmp_path / "tokenizer.model"))
    model = GemmaForCausalLM(config)
    model.load_weights(path)
    with pytest.raises(UsageError, match="outside the vocabulary"):
        # Ids that the model has and this tokenizer does not: 340 to 366.
        model.tokenizer.decode([CONFIG.vocab - 1])  # type: ignore[union-attr]  # it has one here
    assert model.tokenizer is not None
    assert model.tokenizer.n_words == 340


def test_a_gguf_file(path: Path) -> None:
    tokenizer = Tokenizer(path)
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.bos_id) == (PAD, EOS, BOS)
    assert tokenizer.n_words == CONFIG.vocab
    ids = tokenizer.encode("the capital é")
    assert ids[0] == BOS
    assert tokenizer.decode(ids) == "the capital é"
    assert tokenizer.encode("the", eos=True) == [*tokenizer.encode("the"), EOS]


def test_turn_markers_are_tokens(path: Path) -> None:
    tokenizer = Tokenizer(path)
    ids = tokenizer.encode("<bos><start_of_turn>the<end_of_turn>")
    assert ids == [BOS, START_OF_TURN, *tokenizer.encode("the", bos=False), END_OF_TURN]


def test_texts_that_are_none(path: Path, tmp_path: Path) -> None:
    for tokenizer in (Tokenizer(path), Tokenizer(trained(tmp_path / "tokenizer.model"))):
        with pytest.raises(UsageError, match=r"^a text must be a str, not 3"):
            tokenizer.encode(3)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(UsageError, match="character 2 is a lone surrogate"):
            tokenizer.encode("ab\ud800")
        with pytest.raises(UsageError, match=r"^token id -1 is outside the vocabulary"):
            tokenizer.decode([-1])


@pytest.mark.parametrize("name", ["missing.model", "broken.model", "."])
def test_what_is_no_tokenizer_is_named(tmp_path: Path, path: Path, name: str) -> None:
    (tmp_path / "broken.model").write_bytes(b"nonsense")
    config = get_config_for_gguf(path)
    config.tokenizer = str(tmp_path / name)
    with pytest.raises(CheckpointError, match=f"^{config.tokenizer}: ") as caught:
        GemmaForCausalLM(config)
    assert "\n" not in str(caught.value)


def test_a_path_is_needed() -> None:
    with pytest.raises(UsageError, match=r"^a tokenizer must be the path of a file, not 3"):
        Tokenizer(3)  # type: ignore[arg-type]  # wrong on purpose


def test_a_vocabulary_without_padding_is_refused(tmp_path: Path) -> None:
    path = trained(tmp_path / "tokenizer.model", pad_id=-1, unk_id=0)
    with pytest.raises(CheckpointError, match="lacks BOS, EOS or padding"):
        Tokenizer(path)
