"""Text to ids and back, from a SentencePiece model or from the vocabulary of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import sentencepiece

from cabochon.checkpoint.load import load_checkpoint
from cabochon.compat.gemma_pytorch.from_gguf import is_gguf
from cabochon.errors import CheckpointError, UsageError, shown
from cabochon.text import tokenizer as gguf_tokenizer

_PAD = 0
"""Every Gemma's."""


class Tokenizer:
    """Built from a SentencePiece model's file, from a GGUF file, or, for the packaged model, from the name ``demo``.

    Turn markers in a text (``<start_of_turn>``) become their tokens: in Gemma's SentencePiece models they are
    user-defined pieces; in a GGUF file they are control tokens, and there the names of all control tokens do.
    """

    sp_model: sentencepiece.SentencePieceProcessor | None
    """None where the vocabulary came from a GGUF file."""
    n_words: int
    """Tokens in all."""
    bos_id: int
    eos_id: int
    pad_id: int

    def __init__(self, model_path: str | Path) -> None:
        """Raises ``CheckpointError`` if there is no such file, or none of these kinds."""
        if not isinstance(model_path, str | Path):
            raise UsageError(f"a tokenizer must be the path of a file, not {shown(model_path)}")
        self._encode: Callable[[str], list[int]]
        self._decode: Callable[[list[int]], str]
        if is_gguf(model_path):
            self._from_gguf(model_path)
        else:
            self._from_sentencepiece(Path(model_path))

    def _from_gguf(self, path: str | Path) -> None:
        ours = gguf_tokenizer.Tokenizer.from_gguf(load_checkpoint(path).tokenizer)
        self.sp_model = None
        self.n_words, self.bos_id, self.eos_id, self.pad_id = ours.vocab_size, ours.bos_id, ours.eos_id, _PAD
        self._encode = lambda text: ours.encode(text, bos=False, control=True)
        self._decode = ours.decode

    def _from_sentencepiece(self, path: Path) -> None:
        if not path.is_file():
            raise CheckpointError(
                f"{path}: no such tokenizer; set config.tokenizer to a tokenizer.model or a GGUF file"
            )
        sp = sentencepiece.SentencePieceProcessor()
        try:
            sp.LoadFromSerializedProto(path.read_bytes())
        except (OSError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise CheckpointError(f"{path}: not a SentencePiece model or GGUF file ({reason})") from error
        self.sp_model = sp
        self.n_words, self.bos_id, self.eos_id, self.pad_id = sp.vocab_size(), sp.bos_id(), sp.eos_id(), sp.pad_id()
        if min(self.bos_id, self.eos_id, self.pad_id) < 0:
            raise CheckpointError(f"{path}: the tokenizer lacks BOS, EOS or padding, which Gemma's has")
        self._encode = sp.EncodeAsIds
        self._decode = sp.DecodeIds

    def encode(self, s: str, bos: bool = True, eos: bool = False) -> list[int]:
        """Ids of ``s``, with BOS in front (never two) and EOS behind as asked for.

        Raises ``UsageError`` for what is no text, or text that is not Unicode (lone surrogates).
        """
        if not isinstance(s, str):
            raise UsageError(f"a text must be a str, not {shown(s)}")
        try:
            s.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"text is not valid Unicode: character {error.start} is a lone surrogate") from None
        ids = self._encode(s)
        begins = bos and ids[:1] != [self.bos_id]
        return [self.bos_id] * begins + ids + [self.eos_id] * eos

    def decode(self, t: Sequence[int]) -> str:
        """Text of ids; raises ``UsageError`` for an id outside the vocabulary."""
        for token in t:
            if not 0 <= token < self.n_words:
                raise UsageError(f"token id {token} is outside the vocabulary of {self.n_words} tokens")
        return self._decode(list(t))
