"""Faults that must not go unnoticed: each a change of a few words of the sources, and the tests that should see it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

LAW = "tests/laws/test_company_laws.py"
ENGINE = "tests/unit/test_engine.py"
PAGES = "tests/unit/test_pages.py"
PREFIX = "tests/unit/test_prefix.py"
SAMPLING = "tests/unit/test_filters.py"
TALK_FILE = "tests/unit/test_conversation_file.py"
TALKS = "tests/unit/test_conversations.py"
SAVED = "tests/unit/test_saved_sessions.py"

TRACE = "tests/unit/test_trace.py"
TRACE_CHOICES = "tests/unit/test_trace_choices.py"
TRACE_REFERENCE = "tests/oracle/test_reference.py"

COMPAT = "tests/unit/gemma_pytorch/test_loop.py"
COMPAT_SAMPLING = "tests/unit/gemma_pytorch/test_sampler.py"
COMPAT_FILES = "tests/unit/gemma_pytorch/test_loading.py"

BATCH_MODULE = "cabochon.engine.batch"
ENGINE_MODULE = "cabochon.engine.engine"
CHOOSE_MODULE = "cabochon.engine.choose"
HOLDINGS_MODULE = "cabochon.engine.holdings"
REQUEST_MODULE = "cabochon.engine.request"
SCHEDULER_MODULE = "cabochon.engine.scheduler"
PAGES_MODULE = "cabochon.kvcache.pages"
GROUPS_MODULE = "cabochon.kvcache.groups"
CONVERSATION_MODULE = "cabochon.kvcache.conversation_file"
RESTORE_MODULE = "cabochon.kvcache.restore"
PREFIX_MODULE = "cabochon.kvcache.prefix"
HISTORY_MODULE = "cabochon.sampling.history"
SAMPLER_MODULE = "cabochon.sampling.sampler"
CHECK_MODULE = "cabochon.trace.check"
CHOICES_MODULE = "cabochon.trace.choices"
RECORD_MODULE = "cabochon.trace.record"
RECORDER_MODULE = "cabochon.trace.recorder"
COSTS_MODULE = "cabochon.trace.costs"
ATTENTION_MODULE = "cabochon.trace.attention"
RUNS_MODULE = "cabochon.trace.runs"
COMPAT_ROOM = "cabochon.compat.gemma_pytorch"


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of one module's source."""

    module: str
    before: str
    """Stands in the source exactly once."""
    after: str

    def apply(self, source: str) -> str:
        """The source with the change. Raises ``ValueError`` unless ``before`` stands in it exactly once."""
        found = source.count(self.before)
        if found != 1:
            raise ValueError(f"{self.module} holds {self.before!r} {found} times; a mutation needs it once")
        return source.replace(self.before, self.after)


@dataclass(frozen=True, slots=True)
class Mutation:
    """A fault, and where it should be seen."""

    name: str
    tests: tuple[str, ...]
    """Files, those that see it soonest first."""
    edits: tuple[Edit, ...]


def source_of(module: str) -> str:
    """The source text of a module, which is not imported (its packages are)."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ValueError(f"there is no module {module}")
    return Path(spec.origin).read_text("utf-8")


def _one(name: str, tests: tuple[str, ...], module: str, before: str, after: str) -> Mutation:
    return Mutation(name, tests, (Edit(module, before, after),))


_WINDOW = "(group.window or positions + 1)"
_FIRST_PAGE_HELD = """for node in trail.nodes[self._first_page(group, pages) + 1 : pages + 1]
        )"""
_GIVE_BACK = """        self._pages[index] = NO_PAGE
        self._pool.release(page)"""

MUTATIONS: tuple[Mutation, ...] = (
    # ---- The arrays of a step
    _one("window one too large", (ENGINE,), BATCH_MODULE, _WINDOW, "((group.window or positions) + 1)"),
    _one("window one too small", (ENGINE,), BATCH_MODULE, _WINDOW, "((group.window or positions + 2) - 1)"),
    _one(
        "position one up",
        (ENGINE,),
        BATCH_MODULE,
        "positions=positions.astype(np.int32),",
        "positions=(positions + 1).astype(np.int32),",
    ),
    _one(
        "position one down",
        (ENGINE,),
        BATCH_MODULE,
        "positions=positions.astype(np.int32),",
        "positions=np.maximum(positions - 1, 0).astype(np.int32),",
    ),
    _one(
        "position counted from the step",
        (LAW,),
        BATCH_MODULE,
        "positions=positions.astype(np.int32),",
        "positions=(positions - positions[0]).astype(np.int32),",
    ),
    _one(
        "last key one up",
        (LAW,),
        BATCH_MODULE,
        "last_key=np.tile(positions.astype(np.int32), ",
        "last_key=np.tile((positions + 1).astype(np.int32), ",
    ),
    _one(
        "last key one down",
        (ENGINE,),
        BATCH_MODULE,
        "last_key=np.tile(positions.astype(np.int32), ",
        "last_key=np.tile(np.maximum(positions - 1, 0).astype(np.int32), ",
    ),
    _one(
        "a key is stored one page before its own",
        (LAW,),
        BATCH_MODULE,
        "table[rows, positions // PAGE]",
        "table[rows, np.maximum(positions // PAGE - 1, 0)]",
    ),
    _one(
        "a key is stored one slot after its own",
        (LAW,),
        BATCH_MODULE,
        "positions % PAGE for",
        "(positions + 1) % PAGE for",
    ),
    _one(
        "page table one off",
        (LAW,),
        BATCH_MODULE,
        "out[row, : len(table)] = table",
        "out[row, : len(table)] = np.roll(table, 1)",
    ),
    _one(
        "all sequences read the pages of the first",
        (LAW,),
        BATCH_MODULE,
        "out[row, : len(table)] = table",
        "out[row, : len(tables[0])] = tables[0]",
    ),
    _one(
        "logits of the row before",
        (LAW,),
        BATCH_MODULE,
        "start + np.array(s.logit_rows, np.int64)",
        "start + np.maximum(np.array(s.logit_rows, np.int64) - 1, 0)",
    ),
    # ---- Pages
    Mutation(
        "stale pages can be read",
        (LAW, ENGINE),
        (
            Edit(PAGES_MODULE, _GIVE_BACK, "        self._pool.release(page)"),
            Edit(BATCH_MODULE, _WINDOW, "((group.window or positions - PAGE + 1) + PAGE)"),
        ),
    ),
    _one(
        "pages are let go one page too early",
        (LAW,),
        PAGES_MODULE,
        "min(first_page_seen(self._window, next_query), self._length)",
        "min(first_page_seen(self._window, next_query) + (self._window is not None), self._length)",
    ),
    _one(
        "pages are let go one key too early",
        (LAW, PAGES),
        PAGES_MODULE,
        "min(first_page_seen(self._window, next_query), self._length)",
        "min(first_page_seen(self._window, next_query + 1), self._length)",
    ),
    _one(
        "pages are let go one key too late",
        (PAGES,),
        PAGES_MODULE,
        "min(first_page_seen(self._window, next_query), self._length)",
        "min(first_page_seen(self._window, max(next_query - 1, 0)), self._length)",
    ),
    _one(
        "a page is let go twice",
        (LAW,),
        PAGES_MODULE,
        "            self._behind = index + 1\n            self._give_back(index)",
        "            self._give_back(index)",
    ),
    _one(
        "a page is never let go",
        (LAW,),
        PAGES_MODULE,
        _GIVE_BACK,
        "        self._pages[index] = NO_PAGE",
    ),
    _one(
        "a page is free while it has an owner",
        (LAW,),
        PAGES_MODULE,
        "        self._owners[page] -= 1\n        if not self._owners[page]:",
        "        self._owners[page] -= 1\n        if self._owners[page] < 2:",
    ),
    _one(
        "a kept page that has an owner again is still handed out",
        (LAW,),
        PAGES_MODULE,
        "            self._kept.pop(page, None)\n            self._kept_protected.pop(page, None)\n        self._own",
        "        self._own",
    ),
    _one(
        "a page that is handed out keeps its name",
        (LAW,),
        PAGES_MODULE,
        "        self._on_reuse(page)\n",
        "",
    ),
    _one(
        "one page too few is missing",
        (LAW,),
        PAGES_MODULE,
        "return max(pages_of(keys) - self._length, 0)",
        "return max(pages_of(keys) - self._length - 1, 0)",
    ),
    # ---- Reuse
    _one("ids are not compared", (PREFIX,), PREFIX_MODULE, "node.parent is parent and node.ids == ids", "True"),
    _one(
        "ids before the page are not compared",
        (PREFIX,),
        PREFIX_MODULE,
        "node.parent is parent and node.ids == ids",
        "node.ids == ids",
    ),
    _one(
        "ids of the page are not compared",
        (PREFIX,),
        PREFIX_MODULE,
        "node.parent is parent and node.ids == ids",
        "node.parent is parent",
    ),
    _one("tenant left out of names", (PREFIX,), PREFIX_MODULE, " + repr(tenant).encode()", ""),
    _one("model left out of names", (PREFIX,), PREFIX_MODULE, " + self._model", ""),
    _one("parent left out of names", (PREFIX,), PREFIX_MODULE, "sha256(parent + np", "sha256(np"),
    _one(
        "a page is named before it is full",
        (LAW,),
        PREFIX_MODULE,
        "trail.pages < computed // PAGE",
        "trail.pages < -(-computed // PAGE)",
    ),
    _one("no id is left to run", (PREFIX,), PREFIX_MODULE, "(len(ids) - 1) // PAGE", "len(ids) // PAGE"),
    _one(
        "a prefix is reused without the first of its sliding pages",
        (LAW,),
        PREFIX_MODULE,
        _FIRST_PAGE_HELD,
        _FIRST_PAGE_HELD.replace("pages) + 1 :", "pages) + 2 :"),
    ),
    _one(
        "a prefix is reused without the last of its pages",
        (LAW,),
        PREFIX_MODULE,
        _FIRST_PAGE_HELD,
        _FIRST_PAGE_HELD.replace(": pages + 1", ": pages"),
    ),
    _one(
        "a window reaches one page less far back",
        (LAW,),
        GROUPS_MODULE,
        "return first_page_seen(self.window, pages * PAGE)",
        "return first_page_seen(self.window, (pages + 1) * PAGE)",
    ),
    _one(
        "one key more is taken as stored",
        (LAW,),
        PREFIX_MODULE,
        "Found(trail, usable * PAGE,",
        "Found(trail, usable * PAGE + 1,",
    ),
    _one(
        "one key less is taken as stored",
        (PREFIX,),
        PREFIX_MODULE,
        "Found(trail, usable * PAGE,",
        "Found(trail, max(usable * PAGE - 1, 0),",
    ),
    _one(
        "a page handed out again is still found",
        (LAW,),
        PREFIX_MODULE,
        "        node.pages[group] = NO_PAGE\n        self._pages_of_tenant",
        "        self._pages_of_tenant",
    ),
    # ---- The engine
    _one(
        "guesses are accepted without a check",
        (LAW,),
        CHOOSE_MODULE,
        "if token_id != guess or guess in",
        "if guess is None or guess in",
    ),
    _one("wrong guesses are taken as stored", (LAW,), ENGINE_MODULE, "share.first + share.known + right", "share.end"),
    _one(
        "a token after a right guess does not know of it",
        (LAW,),
        CHOOSE_MODULE,
        "ids = [*ids, *(choice.token.token_id for choice in before)]",
        "ids = [*ids]",
    ),
    _one(
        "a paused request goes on where it was",
        (ENGINE,),
        ENGINE_MODULE,
        "        self._holdings.let_go(state)\n        state.computed = 0",
        "        self._holdings.let_go(state)",
    ),
    _one(
        "a paused request keeps its pages",
        (LAW,),
        ENGINE_MODULE,
        "        self._holdings.let_go(state)\n        state.computed = 0",
        "        state.computed = 0",
    ),
    _one(
        "the context is one longer than it is",
        (ENGINE,),
        REQUEST_MODULE,
        "room = min(max_tokens, self.context - len(prompt))",
        "room = min(max_tokens, self.context + 1 - len(prompt))",
    ),
    _one(
        "a share begins one row late",
        (LAW,),
        SCHEDULER_MODULE,
        "SequencePlan(state.number, first, known",
        "SequencePlan(state.number, first + 1, known",
    ),
    _one(
        "a share begins one row early",
        (LAW,),
        SCHEDULER_MODULE,
        "SequencePlan(state.number, first, known",
        "SequencePlan(state.number, max(first - 1, 0), known",
    ),
    _one(
        "a token is chosen in the middle of a prompt",
        (LAW,),
        SCHEDULER_MODULE,
        "samples = known == state.left and",
        "samples =",
    ),
    _one(
        "a copied page keeps those behind it",
        (PREFIX,),
        HOLDINGS_MODULE,
        "                table.let_go_behind(found.keys + found.part_keys)\n",
        "",
    ),
    _one(
        "a fork takes one key too many",
        (ENGINE,),
        HOLDINGS_MODULE,
        "keys = min(state.shared, origin.computed, most)",
        "keys = min(state.shared + 1, origin.computed, most)",
    ),
    Mutation(
        "a fork takes keys that are not stored yet",
        (LAW,),
        (
            Edit(HOLDINGS_MODULE, "keys = min(state.shared, origin.computed, most)", "keys = min(state.shared, most)"),
            Edit(REQUEST_MODULE, "origin.computed < self.shared", "origin.computed < 0"),
        ),
    ),
    _one(
        "a fork shares the page where it parts",
        (ENGINE,),
        PAGES_MODULE,
        "            self.adopt_copy(int(other.entries[whole]), copy)",
        "            self.adopt([*self.entries.tolist(), int(other.entries[whole])])",
    ),
    _one(
        "a page is not copied",
        (PREFIX, ENGINE, LAW),
        PAGES_MODULE,
        "        copy(page, int(self._pages[self._length - 1]))\n",
        "",
    ),
    _one(
        "a page begins one key longer as another does",
        (PREFIX,),
        PREFIX_MODULE,
        "keys = common_ids(node.ids, ids)",
        "keys = min(common_ids(node.ids, ids) + 1, len(ids))",
    ),
    _one(
        "scores are those of the row before",
        (ENGINE,),
        CHOOSE_MODULE,
        "enumerate(logits, start=share.first + 1)",
        "enumerate(logits, start=share.first)",
    ),
    _one(
        "what is scored is reused without its logits",
        (ENGINE, LAW),
        REQUEST_MODULE,
        "return len(self.scores) if self.to_score else len(self.ids)",
        "return len(self.ids)",
    ),
    # ---- Random numbers
    _one(
        "position of the random number one up",
        (SAMPLING,),
        SAMPLER_MODULE,
        "numerics.uniform(params.seed, history.position, params.choice)",
        "numerics.uniform(params.seed, history.position + 1, params.choice)",
    ),
    _one(
        "position of a token one down",
        (SAMPLING,),
        HISTORY_MODULE,
        "return len(self.ids)\n",
        "return len(self.ids) - 1\n",
    ),
    _one(
        "random numbers of all choices are one",
        (SAMPLING,),
        SAMPLER_MODULE,
        "numerics.uniform(params.seed, history.position, params.choice)",
        "numerics.uniform(params.seed, history.position, 0)",
    ),
    # ---- Conversations in files
    _one("a checksum is not looked at", (TALK_FILE,), CONVERSATION_MODULE, "        self._check_digest()\n", ""),
    _one(
        "what is read is not compared with what was found sound",
        (TALKS,),
        RESTORE_MODULE,
        "        file.finish()\n",
        "",
    ),
    _one(
        "a file of another model or type is taken",
        (TALK_FILE,),
        CONVERSATION_MODULE,
        "if header.get(key) != expected[key]:",
        "if key not in header:",
    ),
    _one(
        "a file's length is not looked at",
        (TALK_FILE,),
        CONVERSATION_MODULE,
        "if self._size != file.tell()",
        "if self._size < file.tell()",
    ),
    _one(
        "any number of ids is read",
        (TALK_FILE,),
        CONVERSATION_MODULE,
        "if tokens > context:",
        "if tokens > 2**40:",
    ),
    _one(
        "a new file may not be on the disk when the old one goes",
        (TALK_FILE,),
        CONVERSATION_MODULE,
        "            os.fsync(file.fileno())\n",
        "",
    ),
    _one(
        "a new file that failed stays",
        (TALK_FILE,),
        CONVERSATION_MODULE,
        "            os.unlink(name)\n",
        "            pass\n",
    ),
    _one(
        "restored pages are in another order",
        (TALKS,),
        RESTORE_MODULE,
        "+ list(filled)",
        "+ list(filled[::-1])",
    ),
    _one(
        "a page that is held already is handed out for another",
        (TALKS,),
        RESTORE_MODULE,
        "        pool.retain(page)\n",
        "        pass\n",
    ),
    _one(
        "free pages are not counted before they are taken",
        (TALKS,),
        RESTORE_MODULE,
        "if needed > pool.free:",
        "if needed > pool.pages:",
    ),
    _one(
        "a restored conversation is no checkpoint",
        (TALKS,),
        RESTORE_MODULE,
        "prefixes.end(trail, checkpoint=True)",
        "prefixes.end(trail, checkpoint=False)",
    ),
    # ---- Where only the best id is asked for
    _one(
        "who observes steps sees no logits",
        (ENGINE,),
        ENGINE_MODULE,
        "self._observer is not None or self.limits.vocab",
        "self.limits.vocab",
    ),
    _one(
        "the best id may be no token",
        (ENGINE,),
        ENGINE_MODULE,
        "self.limits.vocab < self._model.config.vocab",
        "self.limits.vocab < 0",
    ),
    _one(
        "log-probabilities are asked for in vain",
        (ENGINE,),
        ENGINE_MODULE,
        "not seen and request.logprobs is None and ",
        "not seen and ",
    ),
    _one("a constraint is not asked", (ENGINE,), SAMPLER_MODULE, "free = constraint is None and ", "free = "),
    _one(
        "bad words are not looked for", (ENGINE,), SAMPLER_MODULE, "not params.bad_words and not params", "not params"
    ),
    _one("penalties are not taken", (ENGINE,), SAMPLER_MODULE, "free and not changes_logits(params) and", "free and"),
    _one(
        "rows of logits and of best ids are mixed up",
        (ENGINE,),
        CHOOSE_MODULE,
        "bests if share.best_only else logits",
        "bests if not share.best_only else logits",
    ),
    _one(
        "an overflow behind the best id goes unnoticed",
        (ENGINE,),
        SAMPLER_MODULE,
        "if best.token_id == NO_BEST:",
        "if best.token_id == NO_BEST - 1:",
    ),
    _one(
        "weights do not tell a model",
        (SAVED,),
        "cabochon.checkpoint.fingerprint",
        "            digest.update(part.data)\n",
        "",
    ),
    _one(
        "a model file written to in the meantime is taken",
        (SAVED,),
        "cabochon.checkpoint.mapped",
        "        if changed:\n",
        "        if changed is None:\n",
    ),
    # ---- Traces
    _one(
        "a trace's candidate is removed by the last part, not the first",
        (TRACE_CHOICES,),
        CHOICES_MODULE,
        "if found < 0 and not reasons[place]:",
        "if found < 0:",
    ),
    _one(
        "the span of the drawn number is one candidate off",
        (TRACE_CHOICES,),
        CHOICES_MODULE,
        "float(sums[place - 1] / sums[-1]) if place else 0.0",
        "float(sums[place] / sums[-1])",
    ),
    _one(
        "the mass of a stage is of what temperature left",
        (TRACE_CHOICES,),
        CHOICES_MODULE,
        "numerics.exp(values[stage.ids] - lse).sum()",
        "numerics.exp(stage.logits - lse).sum()",
    ),
    _one(
        "the logits of a trace are those after penalties",
        (TRACE_CHOICES,),
        CHOICES_MODULE,
        "logits=values[ids],",
        "logits=row[np.minimum(ids, len(row) - 1)],",
    ),
    _one(
        "the position of a choice is that of its row",
        (TRACE,),
        RECORDER_MODULE,
        "choice_made(seen, plan.first + plan.known + n,",
        "choice_made(seen, plan.first + plan.known + n - 1,",
    ),
    _one(
        "pages let go are not seen",
        (TRACE,),
        RECORDER_MODULE,
        "int((table[number] >= 0).argmax()) * PAGE",
        "0 * int((table[number] >= 0).argmax())",
    ),
    _one(
        "the rows of a sequence are those of the first",
        (TRACE,),
        RECORDER_MODULE,
        "rows = slice(row, row + plan.rows)",
        "rows = slice(0, plan.rows)",
    ),
    _one(
        "a character that is not whole is lost at the end",
        (TRACE,),
        RECORD_MODULE,
        "text + detokenizer.flush() if ends else text",
        "text",
    ),
    _one("the end is one token early", (TRACE,), RECORD_MODULE, "number == last and not stopped", "number == last - 1"),
    _one(
        "recomputing leaves out the last layer's saving",
        (TRACE,),
        COSTS_MODULE,
        "(_seen(n - 1, kind.window) if last else 0)",
        "0",
    ),
    _one(
        "the window of recomputing is one too large",
        (TRACE,),
        COSTS_MODULE,
        "return window * (window + 1) // 2 + (rows - window) * window",
        "return window * (window + 1) // 2 + (rows - window) * (window + 1)",
    ),
    _one(
        "the check takes a window for one too large",
        (TRACE,),
        CHECK_MODULE,
        "(kind.window or positions + 1) + 1, 0)",
        "(kind.window or positions + 1), 0)",
    ),
    _one(
        "replaying takes a number on the upper border",
        (TRACE,),
        CHECK_MODULE,
        "return fits and low <= draw < high",
        "return fits and low <= draw",
    ),
    _one("a run begins anew too late", (TRACE,), RUNS_MODULE, "end = at + 1\n", "end = at + 2\n"),
    _one(
        "attention is told of keys from the page's start",
        (TRACE_REFERENCE,),
        ATTENTION_MODULE,
        '"keys")[first % PAGE :][',
        '"keys")[',
    ),
    _one(
        "query heads are grouped the other way round",
        (TRACE_REFERENCE,),
        ATTENTION_MODULE,
        ".reshape(config.kv_heads, shared, config.head_dim)",
        ".reshape(shared, config.kv_heads, config.head_dim).transpose(1, 0, 2)",
    ),
    # ---- The loop of gemma_pytorch
    _one(
        "compat: slots are positions, whatever is asked for",
        (COMPAT,),
        f"{COMPAT_ROOM}.model",
        "slots = input_positions if kv_write_indices is None else kv_write_indices",
        "slots = input_positions",
    ),
    _one("compat: window one too large", (COMPAT,), f"{COMPAT_ROOM}.model", "behind < window", "behind <= window"),
    _one("compat: a query sees the next key", (COMPAT,), f"{COMPAT_ROOM}.model", "behind >= 0", "behind >= -1"),
    _one(
        "compat: the model's choice replaces the prompt",
        (COMPAT,),
        f"{COMPAT_ROOM}.model",
        "torch.where(is_given, tokens[:, index], chosen)",
        "chosen",
    ),
    _one("compat: an end in a prompt counts", (COMPAT,), f"{COMPAT_ROOM}.model", "~is_given & is_last", "is_last"),
    _one(
        "compat: it never ends early",
        (COMPAT,),
        f"{COMPAT_ROOM}.model",
        "finished |= ~is_given & is_last",
        "finished |= is_given & ~is_given",
    ),
    _one(
        "compat: one row's end is the batch's",
        (COMPAT,),
        f"{COMPAT_ROOM}.model",
        "if finished.all():",
        "if finished.any():",
    ),
    _one(
        "compat: the position stands still",
        (COMPAT,),
        f"{COMPAT_ROOM}.model",
        "positions = positions[-1:] + 1",
        "positions = positions[-1:]",
    ),
    _one(
        "compat: rotations take the type of activations",
        (COMPAT,),
        f"{COMPAT_ROOM}.model",
        "input_positions[:, None].float() * frequencies.to(input_positions.device)",
        "(input_positions[:, None] * frequencies.to(self.embedder.weight))",
    ),
    _one(
        "compat: the embedding scale is not rounded",
        (COMPAT,),
        f"{COMPAT_ROOM}.model",
        "h * torch.tensor(self.config.hidden_size**0.5, dtype=h.dtype)",
        "h * self.config.hidden_size**0.5",
    ),
    _one(
        "compat: global rotations are not scaled",
        (COMPAT,),
        f"{COMPAT_ROOM}.model",
        "kind == AttentionType.GLOBAL else None",
        "None else None",
    ),
    _one(
        "compat: top-k comes first",
        (COMPAT_SAMPLING,),
        f"{COMPAT_ROOM}.sampler",
        "        if top_ps is not None:\n",
        "        shares = shares / shares[:, :2].sum(dim=-1, keepdim=True)\n        if top_ps is not None:\n",
    ),
    _one(
        "compat: the draw is by rank",
        (COMPAT_SAMPLING,),
        f"{COMPAT_ROOM}.sampler",
        "torch.zeros_like(kept).scatter(-1, ids, kept)",
        "kept",
    ),
    _one(
        "compat: logits are divided in place",
        (COMPAT_SAMPLING,),
        f"{COMPAT_ROOM}.sampler",
        "(logits.float() / divisors)",
        "logits.div_(divisors)",
    ),
    _one(
        "compat: left-over tensors pass",
        (COMPAT_FILES,),
        f"{COMPAT_ROOM}.loading",
        "    if rest:\n        raise",
        "    if None in rest:\n        raise",
    ),
    _one(
        "compat: scales of int8 are not taken",
        (COMPAT_FILES,),
        f"{COMPAT_ROOM}.loading",
        "(tensor.float() * scales.float()[:, None])",
        "tensor.float()",
    ),
)
