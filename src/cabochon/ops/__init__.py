"""The arithmetic the model is written in: one protocol, two implementations."""
