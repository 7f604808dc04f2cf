/**
 * One recorded run, as the bands of the page ask for it. Nothing is stored for a single cell of the cache: its state at a
 * step follows from a few intervals of that step.
 *
 * Words are those of the page's word list: a *key* is numbered by its place in its sequence, a *slot* is
 * page id x 32 + place in the page, and `[first, difference, count]` is a run of integers.
 */

/** What may be true of one layer's cell at a step. */
export const NEVER = 0;
export const HELD = 1;
export const LET_GO = 2;
export const READ = 3;
export const WRITTEN = 4;

export const STATES = ["never stored", "held", "let go", "read", "written now"];

/** The integers of some runs. */
export function valuesOf(runs) {
  const values = [];
  for (const [first, difference, count] of runs) {
    for (let i = 0; i < count; i++) values.push(first + difference * i);
  }
  return values;
}

/** The smallest and the largest integer of some runs: ends of runs are enough to know them. */
export function spanOf(runs) {
  let low = Infinity;
  let high = -Infinity;
  for (const [first, difference, count] of runs) {
    const last = first + difference * (count - 1);
    low = Math.min(low, first, last);
    high = Math.max(high, first, last);
  }
  return [low, high];
}

/** The last integer of some runs. */
export function lastOf(runs) {
  const [first, difference, count] = runs[runs.length - 1];
  return first + difference * (count - 1);
}

/** Of one sequence in one way of making the steps: what each step wrote, read and held, as intervals. */
class Track {
  constructor(way, run, sequence) {
    const steps = way.steps.length;
    const groups = run.groups.length;
    /** Keys written by step t: start[t] <= key < end[t]. */
    this.start = new Int32Array(steps);
    this.end = new Int32Array(steps);
    /** Keys that were ever stored, up to and with step t. */
    this.stored = new Int32Array(steps);
    /** [P] of [steps]: keys read, inclusive; an empty interval where nothing was. */
    this.low = Array.from({ length: groups }, () => new Int32Array(steps));
    this.high = Array.from({ length: groups }, () => new Int32Array(steps).fill(-1));
    /** The same of the last layer, where only rows that give logits look at keys. */
    this.lastLow = new Int32Array(steps);
    this.lastHigh = new Int32Array(steps).fill(-1);
    /** [P] of [steps]: the first key whose page is held. */
    this.heldFrom = Array.from({ length: groups }, () => new Int32Array(steps));
    this.shares = new Array(steps).fill(null);
    const lastGroup = run.groupOf[run.layers - 1];
    for (let t = 0; t < steps; t++) {
      const share = way.steps[t].shares.find((s) => s.sequence === sequence) ?? null;
      this.shares[t] = share;
      if (t > 0) {
        this.stored[t] = this.stored[t - 1];
        for (let g = 0; g < groups; g++) this.heldFrom[g][t] = this.heldFrom[g][t - 1];
      }
      if (share === null) continue;
      // A row's own key is the last that any of the step's rows may see, whatever position the row was told.
      this.end[t] = spanOf(share.last_key[0])[1] + 1;
      this.start[t] = this.end[t] - share.ids.length;
      this.stored[t] = Math.max(this.stored[t], this.end[t]);
      for (let g = 0; g < groups; g++) {
        this.low[g][t] = spanOf(share.first_key[g])[0];
        this.high[g][t] = spanOf(share.last_key[g])[1];
        this.heldFrom[g][t] = share.held_from[g];
      }
      if (share.choices.length > 0) {
        // Guesses want logits, too: the first row that does sees the oldest key.
        this.lastLow[t] = valuesOf(share.first_key[lastGroup])[share.ids.length - share.guesses - 1];
        this.lastHigh[t] = lastOf(share.last_key[lastGroup]);
      }
    }
  }
}

/** One way to make the steps: the cached run, or one that is held against it. */
export class Way {
  constructor(run, data) {
    this.run = run;
    this.name = data.variant ?? "cached";
    this.about = data.about ?? "each step runs what is new: the prompt, then one token with one position";
    this.variant = data.variant ? data : null;
    this.steps = data.steps;
    this.sequences = data.variant ? 1 : run.prompts.length;
    this.tracks = Array.from({ length: this.sequences }, (_, s) => new Track(this, run, s));
    /** Tokens of each sequence by position: the prompt, and what the cached run chose. Every variant is given these. */
    this.texts = run.prompts.slice(0, this.sequences).map(({ ids }, s) => [...ids, ...run.end.sequences[s].token_ids]);
    /** [sequence] of [position]: how this way chose for it, and in which step. */
    this.chosen = this.texts.map(() => []);
    this.steps.forEach((step, t) => {
      for (const share of step.shares) {
        for (const choice of share.choices) this.chosen[share.sequence][choice.position] = { choice, step: t };
      }
    });
  }

  /** The stamp: two or three words that say what came of it. */
  get verdict() {
    if (this.variant === null) return "the run";
    if (this.variant.verdict !== "broken") return this.variant.verdict;
    const at = this.variant.difference;
    return `broken: step ${this.variant.first_step}` + (at ? `, first at layer ${at.layer}` : "");
  }

  /** What the cached run has in place of a choice, if that is another token; else null. */
  insteadOf(choice, sequence) {
    const id = this.texts[sequence][choice.position];
    return this.variant === null || id === undefined || id === choice.token ? null : id;
  }

  share(step, sequence) {
    return this.tracks[sequence].shares[step];
  }

  /** Positions that the text has room for on the screen: of all steps. */
  length(sequence) {
    const track = this.tracks[sequence];
    return Math.max(track.stored[track.stored.length - 1], this.texts[sequence].length);
  }

  /** What a layer of this sequence reads at a step, [low, high], inclusive; low > high where nothing is read. */
  reads(layer, step, sequence) {
    const track = this.tracks[sequence];
    if (layer === this.run.layers - 1) return [track.lastLow[step], track.lastHigh[step]];
    const group = this.run.groupOf[layer];
    return [track.low[group][step], track.high[group][step]];
  }

  /** The state of one cell. */
  state(layer, position, step, sequence) {
    const track = this.tracks[sequence];
    if (position < 0 || position >= track.stored[step]) return NEVER;
    if (track.start[step] <= position && position < track.end[step]) return WRITTEN;
    if (position < track.heldFrom[this.run.groupOf[layer]][step]) return LET_GO;
    const [low, high] = this.reads(layer, step, sequence);
    return low <= position && position <= high ? READ : HELD;
  }

  /** A layer at a step from left to right: [state, first, end), each as long as can be. */
  intervals(layer, step, sequence) {
    const track = this.tracks[sequence];
    const [low, high] = this.reads(layer, step, sequence);
    const held = track.heldFrom[this.run.groupOf[layer]][step];
    // Between two of these borders all cells are alike.
    const borders = [0, held, low, high + 1, track.start[step], track.end[step], track.stored[step]];
    borders.sort((a, b) => a - b);
    const found = [];
    for (let i = 0; i + 1 < borders.length; i++) {
      const [first, end] = [borders[i], borders[i + 1]];
      if (first < 0 || first >= end) continue;
      const state = this.state(layer, first, step, sequence);
      if (state === NEVER) continue;
      const before = found[found.length - 1];
      if (before && before[0] === state && before[2] === first) before[2] = end;
      else found.push([state, first, end]);
    }
    return found;
  }

  /** The step that wrote a key last, up to this one; -1 if none has. */
  writtenAt(position, step, sequence) {
    const track = this.tracks[sequence];
    for (let t = step; t >= 0; t--) {
      if (track.start[t] <= position && position < track.end[t]) return t;
    }
    return -1;
  }

  /** How many steps have read a key in a layer, up to this one. */
  timesRead(layer, position, step, sequence) {
    let times = 0;
    for (let t = 0; t <= step; t++) {
      const [low, high] = this.reads(layer, t, sequence);
      times += low <= position && position <= high;
    }
    return times;
  }

  /** The slot of a key in a group: from the step that wrote it. */
  slotOf(group, position, step, sequence) {
    const t = this.writtenAt(position, step, sequence);
    if (t < 0) return null;
    const slot = valuesOf(this.share(t, sequence).slots[group])[position - this.tracks[sequence].start[t]];
    return { page: Math.floor(slot / this.run.page), place: slot % this.run.page };
  }

  /** The step that a token came into the model with, or was chosen by where it never went in. */
  stepOf(position, sequence) {
    const track = this.tracks[sequence];
    const chosen = this.chosen[sequence][position];
    if (chosen) return chosen.step;
    for (let t = 0; t < this.steps.length; t++) {
      if (track.start[t] <= position && position < track.end[t]) return t;
    }
    return this.steps.length - 1;
  }
}

/** A run as its JSON tells it, with its ways. */
export class Run {
  constructor(data) {
    this.title = data.title;
    this.header = data.header;
    this.model = data.header.model;
    this.page = data.header.page;
    this.prompts = data.header.prompts;
    this.groups = data.header.model.groups;
    this.layers = data.header.model.layers;
    this.pieces = data.pieces;
    this.end = data.end;
    /** [L] the group of each layer. */
    this.groupOf = new Int32Array(this.layers);
    this.groups.forEach((group, g) => group.layers.forEach((layer) => (this.groupOf[layer] = g)));
    this.ways = [{ steps: data.steps }, ...data.variants].map((way) => new Way(this, way));
  }

  /** The text of an id by itself. */
  piece(id) {
    return this.pieces[id] ?? `#${id}`;
  }

  /** "global", or "sliding, window 512". */
  kind(group) {
    const window = this.groups[group].window;
    return window === null ? "global" : `sliding, window ${window}`;
  }
}
