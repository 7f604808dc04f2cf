"""Types of the native core (``native/binding.cpp``)."""

def version() -> str:
    """The version this module was built as."""
