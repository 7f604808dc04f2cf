"""From a file's name to a session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Literal, get_args

from cabochon.checkpoint.demo import Progress
from cabochon.checkpoint.dequantize import dequantize
from cabochon.checkpoint.fingerprint import fingerprint
from cabochon.checkpoint.load import Checkpoint, load_checkpoint
from cabochon.errors import RunError, UsageError, shown
from cabochon.kvcache.conversation_file import Origin
from cabochon.kvcache.groups import KVLayout
from cabochon.kvcache.plan import MemoryPlan, plan_memory
from cabochon.kvcache.store import KVStore
from cabochon.model.config import GemmaConfig
from cabochon.model.layout import kv_layout
from cabochon.model.model import Model
from cabochon.model.native_model import build_native_model
from cabochon.model.torch_model import build_torch_model
from cabochon.ops.cpus import MAX_THREADS
from cabochon.sampling.defaults import sampling_from_gguf
from cabochon.sampling.params import listed, true_or_false, whole_number
from cabochon.session.meanwhile import Meanwhile
from cabochon.session.session import Session
from cabochon.text.tokenizer import Tokenizer
from cabochon.text.vocabulary import read_vocabulary
from cabochon.types import Activations, BackendName, KVType

CONTEXT = 4096
"""Tokens that memory is reserved for unless told otherwise, or the model's context if less."""

CHECKPOINTS = 4
"""Places to go on from that are protected in sliding layers, for each running request."""

MAX_GUESSES = 64
"""More than a step could hold at little cost."""

MAX_RUNNING = 4096
"""More would be a slip of the hand."""

LOGIT_ROWS = 32
"""Rows whose logits the native model has memory for; it makes more in parts of so many."""

CHUNK = 512
"""Rows of a prompt in one step, at most."""


def load(
    path_or_name: str | Path = "demo",
    *,
    backend: BackendName | Literal["auto"] = "auto",
    threads: int | None = None,
    context: int | None = None,
    chunk: int | None = None,
    activations: Activations = "int8x2",
    kv_type: KVType = "f16",
    max_running: int = 1,
    kv_memory: int | None = None,
    prefix_cache: bool = True,
    speculate: int = 0,
    whole_context: bool = False,
    keep_queries: Iterable[int] | Literal["all"] = (),
    progress: Progress | None = None,
) -> Session:
    """Opens a model: a GGUF file, a directory with one, or ``demo`` for the packaged Gemma 3 270M.

    ``backend`` is ``native`` (what ``auto`` takes) or ``torch``, the reference in float32. ``threads`` is the number of
    CPU threads, by default the physical cores this process may use. Memory for ``context`` tokens is reserved now:
    4,096 by default, or the model's own context if that is less. ``chunk`` rows of a prompt are run at a time; it
    changes speed and memory, but no result. ``activations`` is how values enter the native backend's products with
    quantised weights, and ``kv_type`` how keys and values are stored. ``max_running`` is the most generations that run
    together; ``kv_memory`` the bytes of keys and values, by default what so many whole contexts take. With
    ``prefix_cache`` texts that begin alike share what is stored of their beginning. ``speculate`` is the most tokens of
    a text that are guessed from its own words and tried in one step: the same text, sooner where it repeats.
    ``whole_context`` makes room for steps of as many rows as the context has tokens, which ``verify`` needs.
    Of the layers ``keep_queries``, or ``all``, the model keeps each step's queries, for traces that tell attention.
    ``progress`` is told (done, in all) while work is under way that may take long.

    Raises:
        UsageError: an argument cannot be; the message names it.
        CheckpointError: there is no sound model of a known kind there.
        MissingDependencyError: the demo's package or PyTorch is not installed.
        RunError: there is not enough memory.
    """
    start = time.perf_counter()
    _check_choice("backend", backend, ("auto", *get_args(BackendName)))
    _check_choice("activations", activations, get_args(Activations))
    _check_choice("kv_type", kv_type, get_args(KVType))
    if backend == "torch" and activations != "int8x2":
        raise UsageError(f"activations {activations} is of the native backend; the torch backend computes in float32")
    chunk = CHUNK if chunk is None else whole_number("chunk", chunk, at_least=1)
    if threads is not None:
        threads = whole_number("threads", threads, at_least=1, at_most=MAX_THREADS)
    if context is not None:
        context = whole_number("context", context, at_least=1)
    max_running = whole_number("max_running", max_running, at_least=1, at_most=MAX_RUNNING)
    if kv_memory is not None:
        kv_memory = whole_number("kv_memory", kv_memory, at_least=1)
    speculate = whole_number("speculate", speculate, at_least=0, at_most=MAX_GUESSES)
    prefix_cache = true_or_false("prefix_cache", prefix_cache)
    whole_context = true_or_false("whole_context", whole_context)
    if progress is not None and not callable(progress):
        raise UsageError(f"progress must be a function of (bytes done, bytes in all), not {shown(progress)}")
    checkpoint = load_checkpoint(path_or_name, progress=progress)
    context = _context(checkpoint.config, context)
    chunk = min(chunk, context)
    rows = context if whole_context else chunk
    defaults = sampling_from_gguf(checkpoint.sampling)
    vocabulary = read_vocabulary(checkpoint.tokenizer)
    layout = kv_layout(checkpoint.config)
    plan = plan_memory(
        layout.groups,
        kv_type,
        context=context,
        chunk=rows,
        running=max_running,
        checkpoints=CHECKPOINTS * max_running if prefix_cache else 0,
        kv_memory=kv_memory,
    )
    store = _store(layout, plan, kv_type)
    kept = _layers("keep_queries", keep_queries, checkpoint.config.layers)
    build: Callable[[Checkpoint, KVStore], Model] = (
        partial(_torch_model, threads=threads, keep_queries=kept)
        if backend == "torch"
        else partial(
            _native_model, threads=threads, activations=activations, rows=rows, keep_queries=kept, progress=progress
        )
    )
    # Both are native work for the most part; together they end sooner.
    with Meanwhile(lambda: Tokenizer(vocabulary)) as tokenizer:
        model = build(checkpoint, store)
    return Session(
        model,
        tokenizer.result,
        context=context,
        chunk=chunk,
        rows=rows,
        name=checkpoint.name,
        load_s=time.perf_counter() - start,
        defaults=defaults,
        max_running=max_running,
        checkpoint_pages=plan.checkpoint_pages if prefix_cache else None,
        speculate=speculate,
        origin=_origin(checkpoint, backend, activations),
    )


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, not {shown(value)}")


def _layers(name: str, layers: Iterable[int] | Literal["all"], count: int) -> frozenset[int]:
    if layers == "all":
        return frozenset(range(count))
    return frozenset(
        whole_number(f"{name}: layer", layer, at_least=0, at_most=count - 1)
        for layer in listed(name, layers, "layer numbers")
    )


def _context(config: GemmaConfig, asked: int | None) -> int:
    if asked is None:
        return min(CONTEXT, config.context_length)
    if asked > config.context_length:
        raise UsageError(f"context {asked} is more than the {config.context_length} tokens this model was made for")
    return asked


def _origin(checkpoint: Checkpoint, backend: str, activations: Activations) -> Callable[[], Origin]:
    """What keys and values come from, found out when it is first asked for."""
    # The file stays mapped, which need not cost memory.
    checkpoint.mapped.release_all()
    model = replace(checkpoint, tokenizer={}, sampling={})
    arithmetic = "torch" if backend == "torch" else f"native {activations}"
    return cache(lambda: Origin(fingerprint(model), arithmetic))


def _store(layout: KVLayout, plan: MemoryPlan, kv_type: KVType) -> KVStore:
    try:
        return KVStore(layout, plan.pages, kv_type)
    except MemoryError:
        raise RunError(
            f"no memory for {plan.nbytes / 2**20:,.0f} MiB of keys and values ({'; '.join(plan.arithmetic)}); ask for a"
            " smaller context or fewer running requests"
        ) from None


def _native_model(
    checkpoint: Checkpoint,
    store: KVStore,
    *,
    threads: int | None,
    activations: Activations,
    rows: int,
    keep_queries: frozenset[int],
    progress: Progress | None,
) -> Model:
    return build_native_model(
        checkpoint.config,
        checkpoint.tensors,
        store,
        threads=threads,
        activations=activations,
        max_rows=rows,
        max_logit_rows=LOGIT_ROWS,
        keep_queries=keep_queries,
        release=checkpoint.mapped.release,
        progress=progress,
    )


def _torch_model(checkpoint: Checkpoint, store: KVStore, *, threads: int | None, keep_queries: frozenset[int]) -> Model:
    return build_torch_model(
        checkpoint.config,
        lambda name: dequantize(checkpoint.tensors[name]),
        store,
        threads=threads,
        keep_queries=keep_queries,
    )
