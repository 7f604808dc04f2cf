"""The model: its description, its tensors, and its arithmetic, written once over ``ops``."""
