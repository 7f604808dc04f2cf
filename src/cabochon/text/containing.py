"""Which tokens show a given text."""

from __future__ import annotations

from collections.abc import Collection

from cabochon.errors import UsageError, shown
from cabochon.text.tokenizer import Tokenizer


class TokensContaining:
    """Finds the tokens in whose text others occur. It reads the whole vocabulary, once for each set of texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._found: dict[frozenset[str], frozenset[int]] = {}

    def ids(self, texts: Collection[str]) -> frozenset[int]:
        """Ids of all tokens whose text contains one of ``texts``; raises ``UsageError`` for one that is in none."""
        wanted = frozenset(texts)
        if wanted not in self._found:
            self._found[wanted] = self._search(wanted)
        return self._found[wanted]

    def _search(self, texts: frozenset[str]) -> frozenset[int]:
        spelled = {text: text.encode("utf-8", "replace") for text in texts if text}
        found: set[int] = set()
        met: set[str] = set()
        for token_id in range(self._tokenizer.vocab_size):
            piece = self._tokenizer.piece_bytes(token_id)
            for text, spelling in spelled.items():
                if spelling in piece:
                    found.add(token_id)
                    met.add(text)
        for text in texts - met:
            raise UsageError(f"no token's text contains {shown(text)}")
        return frozenset(found)
