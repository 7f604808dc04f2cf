"""Other projects' interfaces, on Cabochon's operations: for programs that are written for them, and for reading."""
