"""The ``cabochon`` command."""
