"""The KV cache: pages of keys and values, the groups of layers that share them, who owns which, and the arrays."""
