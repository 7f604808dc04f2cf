"""Text and ids: the tokenizer, the incremental detokenizer and stop strings."""
