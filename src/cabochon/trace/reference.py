"""A run held against an independent implementation: ``transformers``, in float32, on the weights of the same file.

The reference follows our run turn by turn, with a cache of its own, and its logits are held against ours. It rounds in
another order, so they are close and not equal; another token is no fault where the logits' difference can make it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cabochon.engine.request import Request
from cabochon.errors import MissingDependencyError, UnsupportedError
from cabochon.events import Choice, StepRecord
from cabochon.model.config import GemmaConfig
from cabochon.model.tensors import tensor_specs
from cabochon.sampling.history import History
from cabochon.sampling.sampler import sample
from cabochon.session.session import Session
from cabochon.trace.against import LOGIT_TOLERANCE
from cabochon.trace.verify import check_idle, finished
from cabochon.types import Float32, Int32

MEAN = 2e-3
"""Mean difference of the chosen tokens' log-probabilities that is allowed: the eighth law."""

Verdict = Literal["agrees", "differs"]

Weights = Callable[[str], Float32]
"""A tensor by our name (``model/tensors.py``), dequantised."""

_TOP = {"embedding": "model.embed_tokens", "final_norm": "model.norm", "head": "lm_head"}
_ROLES = {
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "query_norm": "self_attn.q_norm",
    "key_norm": "self_attn.k_norm",
    "attention_output": "self_attn.o_proj",
    "attention_post_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "ffn_post_norm": "post_feedforward_layernorm",
}


@dataclass(frozen=True, slots=True)
class Agreement:
    """What came of holding a run against the reference."""

    verdict: Verdict
    steps: int
    """Tokens chosen, a stop id included."""
    same_text: bool
    """Whether the reference's logits would have given every token."""
    first_step: int | None
    """The first turn whose token would have been another."""
    margin: float | None
    """How far our largest logit, after bias and penalties, was above the next one there."""
    explained: bool
    """Whether every such token is one that rounding can change."""
    mean_logprob_difference: float
    """Of the chosen tokens."""
    max_logprob_difference: float
    max_logit_difference: float
    """Of two logits of one id, over all turns."""
    seconds: float
    """Of our steps."""
    reference_seconds: float


class Reference:
    """``Gemma3ForCausalLM`` in float32 with the weights of a checkpoint, on the CPU."""

    def __init__(self, config: GemmaConfig, weights: Weights, *, threads: int | None = None, **settings: Any) -> None:
        """``settings`` replace those that the config gives.

        Raises ``MissingDependencyError`` if transformers or PyTorch is not installed, ``UnsupportedError`` for a model
        that it cannot express.
        """
        try:
            import torch
            import transformers
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                'the reference needs transformers and PyTorch: pip install "cabochon[reference]"'
            ) from error
        self._torch = torch
        self._threads = threads or torch.get_num_threads()
        self._model = transformers.Gemma3ForCausalLM(
            transformers.Gemma3TextConfig(**(settings_of(config) | settings))
        ).eval()
        state = {_their_name(spec.name, spec.role): weights(spec.name) for spec in tensor_specs(config)}
        norms = {_their_name(spec.name, spec.role) for spec in tensor_specs(config) if spec.kind == "norm"}
        tensors = {
            # Norms are stored less one.
            name: torch.from_numpy(values - np.float32(1) if name in norms else np.ascontiguousarray(values))
            for name, values in state.items()
        }
        missing, unexpected = self._model.load_state_dict(tensors, strict=False)
        if unexpected or set(missing) > ({"lm_head.weight"} if config.tied_head else set()):
            raise UnsupportedError(f"transformers' Gemma 3 has other tensors: {sorted({*missing, *unexpected})}")
        self._new_cache: Callable[[], Any] = lambda: transformers.DynamicCache(config=self._model.config)
        self._cache = self._new_cache()

    def logits(self, ids: Int32) -> Float32:
        """Logits [n, V] of every position of a text, in one pass."""
        return self._run(ids, use_cache=False)

    def start(self) -> None:
        """A new text: nothing of an earlier one is kept."""
        self._cache = self._new_cache()

    def go_on(self, ids: Sequence[int]) -> Float32:
        """Logits [V] after more ids of the text, the earlier ones in its own cache."""
        row: Float32 = self._run(np.array(ids, np.int32), cache=self._cache, use_cache=True, logits_to_keep=1)[0]
        return row

    def _run(self, ids: Int32, **how: Any) -> Float32:
        torch = self._torch
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            with torch.inference_mode():
                logits: Float32 = self._model(torch.from_numpy(ids.astype(np.int64))[None], **how).logits[0].numpy()
        finally:
            torch.set_num_threads(before)
        return logits


def agreement(session: Session, reference: Reference, prompt: str | Sequence[int], **options: Any) -> Agreement:
    """Generates, and lets the reference follow; options are those of ``Session.request``.

    Raises ``UsageError`` if the session is busy, and whatever ``generate`` raises.
    """
    request = session.request(prompt, **options)
    check_idle(session)
    following = _Following(session, reference, request)
    reference.start()
    state = finished(session.new_engine(following), request)
    if state.error is not None:
        raise state.error
    return following.outcome()


class _Following:
    """An observer that runs the reference turn by turn beside the engine."""

    def __init__(self, session: Session, reference: Reference, request: Request) -> None:
        self._session = session
        self._reference = reference
        self._request = request
        self._ids = list(request.prompt)
        self._fed = 0
        self._differences: list[float] = []
        self._largest = 0.0
        self._first: int | None = None
        self._margin: float | None = None
        self._explained = True
        self._seconds = self._their_seconds = 0.0

    def __call__(self, record: StepRecord) -> None:
        self._seconds += record.seconds
        (choices,) = record.choices
        for choice, row in zip(choices, record.logits.rows(), strict=True):
            self._hold(choice, row.values)

    def _hold(self, choice: Choice, ours: Float32) -> None:
        start = time.perf_counter()
        theirs = self._reference.go_on(self._ids[self._fed :])
        self._their_seconds += time.perf_counter() - start
        self._fed = len(self._ids)
        token_id = choice.token.token_id
        off = float(np.abs(ours - theirs).max())
        self._largest = max(self._largest, off)
        self._differences.append(abs(_logprob(ours, token_id) - _logprob(theirs, token_id)))
        history = History(self._ids, len(self._request.prompt))
        other = sample(
            theirs,
            self._request.params,
            history,
            self._session.limits.vocab,
            stop_ids=self._request.stop_ids,
            constraint=self._request.constraint,
        )
        if other.token != choice.token:
            if self._first is None:
                second, first = np.partition(ours if choice.row is None else choice.row, -2)[-2:]
                self._first, self._margin = len(self._differences) - 1, float(first - second)
            self._explained = self._explained and _can_change(choice, ours, off)
        self._ids.append(token_id)

    def outcome(self) -> Agreement:
        """When the run is over."""
        mean = float(np.mean(self._differences))
        return Agreement(
            verdict="agrees" if mean <= MEAN and self._explained else "differs",
            steps=len(self._differences),
            same_text=self._first is None,
            first_step=self._first,
            margin=self._margin,
            explained=self._explained,
            mean_logprob_difference=mean,
            max_logprob_difference=max(self._differences),
            max_logit_difference=self._largest,
            seconds=self._seconds,
            reference_seconds=self._their_seconds,
        )


def _can_change(choice: Choice, ours: Float32, off: float) -> bool:
    """Whether it is rounding that chose another token: the logits are off by no more than rounding may make them, and
    what was drawn lies where so little decides."""
    if off > LOGIT_TOLERANCE * max(float(np.std(ours)), 1.0):
        return False
    if choice.draw is None:  # two logits that change places are that close
        return True
    last = choice.stages[-1]
    # Every probability is off by a factor of exp(2 off) at most, and a filter may have cut one candidate off.
    weights = np.exp(last.logits.astype(np.float64) - float(last.logits[0]))
    sums = np.cumsum(weights) / weights.sum()
    return bool(np.abs(sums - choice.draw).min() <= 2 * off + weights[-1] / weights.sum())


def _logprob(logits: Float32, token_id: int) -> float:
    exact = logits.astype(np.float64) - float(logits.max())
    return float(exact[token_id] - np.log(np.exp(exact).sum()))


def _their_name(name: str, role: str) -> str:
    layer = name.split(".")[1:-1]
    prefix = f"model.layers.{layer[0]}.{_ROLES[role]}" if layer else _TOP[name]
    return f"{prefix}.weight"


def settings_of(config: GemmaConfig) -> dict[str, Any]:
    """A config in the words of ``Gemma3TextConfig``; raises ``UnsupportedError`` for what it cannot express."""
    ropes: dict[bool, dict[str, Any]] = {True: {"rope_type": "default"}, False: {"rope_type": "default"}}
    for window, rope in zip(config.layer_windows, config.layer_ropes, strict=True):
        kind = {"rope_type": "linear", "rope_theta": rope.theta, "factor": rope.factor}
        if ropes[window is None] not in ({"rope_type": "default"}, kind):
            raise UnsupportedError("transformers' Gemma 3 has one rope for sliding and one for global layers")
        ropes[window is None] = kind
    scalar = round(config.query_scale**-2)
    if config.architecture != "gemma3" or not np.isclose(scalar**-0.5, config.query_scale, rtol=1e-12):
        raise UnsupportedError(f"transformers' Gemma 3 cannot express this model ({config.architecture})")
    return {
        "attn_implementation": "eager",
        "dtype": "float32",
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "intermediate_size": config.ffn,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.rms_eps,
        "query_pre_attn_scalar": scalar,
        "sliding_window": config.window or 1,
        "layer_types": ["full_attention" if window is None else "sliding_attention" for window in config.layer_windows],
        "rope_parameters": {"full_attention": ropes[True], "sliding_attention": ropes[False]},
        "final_logit_softcapping": config.final_softcap,
        "attn_logit_softcapping": config.attn_softcap,
        "tie_word_embeddings": config.tied_head,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
