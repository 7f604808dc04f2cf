"""Other projects' tensor names, as ours (``model/tensors.py`` declares those)."""

from __future__ import annotations

from types import MappingProxyType

from cabochon.errors import TensorError

_GGUF_TOP = MappingProxyType({"embedding": "token_embd", "final_norm": "output_norm", "head": "output"})

_GGUF_ROLES = MappingProxyType(
    {
        "attention_norm": "attn_norm",
        "query": "attn_q",
        "key": "attn_k",
        "value": "attn_v",
        "query_norm": "attn_q_norm",
        "key_norm": "attn_k_norm",
        "attention_output": "attn_output",
        "attention_post_norm": "post_attention_norm",
        "ffn_norm": "ffn_norm",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
        "ffn_post_norm": "post_ffw_norm",
    }
)


def gguf_name(ours: str) -> str:
    """GGUF's name of one of our tensors: ``blk.3.attn_output.weight`` for ``layers.3.attention_output``.

    Raises ``TensorError`` for a name that is not in the table.
    """
    if ours in _GGUF_TOP:
        return f"{_GGUF_TOP[ours]}.weight"
    prefix, _, rest = ours.partition(".")
    layer, _, role = rest.partition(".")
    if prefix != "layers" or not layer.isdecimal() or role not in _GGUF_ROLES:
        raise TensorError(f"tensor {ours}: GGUF has no name for it")
    return f"blk.{layer}.{_GGUF_ROLES[role]}.weight"
