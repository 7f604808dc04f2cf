"""Requests to steps of the model and back (stops 3, 4 and 7). Knows ids, never text."""
