"""From files to a ``Checkpoint``: readers, the mapping of their names to ours, and the strict loader."""
