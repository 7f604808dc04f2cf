"""Logits to a token (stop 6): filters in a fixed order, a counter-based draw, log-probabilities."""
