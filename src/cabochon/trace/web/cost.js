/** What the run has cost so far, beside what running the whole text again for every token would have. */

import { bytes, count, h } from "cabochon/dom.js";
import { term } from "cabochon/words.js";

const SVG = "http://www.w3.org/2000/svg";

/** What can be counted: how it is called, how it is read off a cost, and how it is written. */
const METRICS = {
  tokens: { label: "tokens run", of: (cost) => cost.tokens, told: count, unit: () => ["tokens run"] },
  pairs: {
    label: "query-key pairs",
    of: (cost) => cost.pairs,
    told: count,
    unit: () => [term("query-key pair", "query-key pairs")],
  },
  bytes: {
    label: "bytes of keys and values",
    of: (cost) => cost.bytes_read + cost.bytes_written,
    told: bytes,
    unit: () => ["of ", term("keys and values"), " read and written"],
  },
  seconds: { label: "seconds", of: (cost) => cost.seconds, told: (s) => `${s.toFixed(2)} s`, unit: () => ["of work"] },
};

const NOTHING = { tokens: 0, pairs: 0, bytes_read: 0, bytes_written: 0, seconds: 0 };

const add = (a, b) => Object.fromEntries(Object.keys(NOTHING).map((key) => [key, a[key] + b[key]]));

/** Keys that the first n positions see, each for itself: the sum of min(i + 1, window). */
function seen(n, window) {
  const w = window ?? Infinity;
  return n <= w ? (n * (n + 1)) / 2 : (w * (w + 1)) / 2 + (n - w) * w;
}

/** What a step costs that runs the positions first to end - 1 and wants the logits of the last: `trace/costs.py` in short. */
export function costOfRows(run, first, end) {
  const rows = end - first;
  let keys = 0;
  let read = 0;
  let written = 0;
  for (const group of run.groups) {
    const all = seen(end, group.window) - seen(first, group.window);
    const one = seen(end, group.window) - seen(end - 1, group.window);
    // Of the last layer only the row that gives logits looks at keys.
    const lasts = group.layers.includes(run.layers - 1) ? 1 : 0;
    const ofGroup = all * (group.layers.length - lasts) + one * lasts;
    keys += ofGroup;
    read += ofGroup * group.position_bytes;
    written += rows * group.layers.length * group.position_bytes;
  }
  return { tokens: rows, pairs: keys * run.model.heads, bytes_read: read, bytes_written: written, seconds: NaN };
}

/** Seconds of each turn of a way that makes one choice a step, where this can be held against another such way. */
function secondsOf(way) {
  const single = way && way.run.prompts.length === 1;
  return single && way.steps.every((step) => step.shares[0].choices.length === 1) ? way.steps.map((step) => step.seconds) : [];
}

/**
 * Sums up to and with each step: of the way itself, and of what it is held against. That is running the whole text again
 * for every token, or for a variant the cached run.
 */
export function curves(way) {
  const { run } = way;
  const cached = way.variant === null;
  const seconds = secondsOf(cached ? run.ways.find((other) => other.name === "no-cache") : run.ways[0]);
  const own = [];
  const other = [];
  let [mine, theirs] = [NOTHING, NOTHING];
  let turn = 0;
  for (const step of way.steps) {
    mine = add(mine, { ...step.cost, seconds: step.seconds });
    for (const share of step.shares) {
      for (const { position } of share.choices) {
        const first = cached || turn === 0 ? 0 : position - 1;
        theirs = add(theirs, { ...costOfRows(run, first, position), seconds: seconds[turn] ?? NaN });
        turn += 1;
      }
    }
    own.push(mine);
    other.push(theirs);
  }
  return { own, other };
}

export function mount(element, run) {
  let metric = "tokens";
  let view = null;
  let drawn = "";
  const known = new Map();
  const options = Object.entries(METRICS).map(([name, { label }]) => h("option", { value: name }, label));
  const pick = (event) => {
    metric = event.target.value;
    show(view);
  };
  const svg = shape("svg", { viewBox: "0 0 1000 1000", preserveAspectRatio: "none" });
  const cursor = h("i", { class: "cursor" });
  const dots = { other: h("i", { class: "dot other" }), own: h("i", { class: "dot own" }) };
  const top = h("span", { class: "numbers top-value" });
  const legend = h("p", { class: "legend" });
  const words = h("p", { id: "cost-words", class: "in-words" });
  element.append(
    h("div", { class: "controls" }, h("select", { "aria-label": "what is counted", onchange: pick }, ...options)),
    h("div", { class: "curves", "aria-hidden": "true" }, svg, cursor, dots.other, dots.own, top),
    legend,
    words,
  );

  /** Sums of a way; worked out when it is first shown. */
  function sums(way) {
    if (!known.has(way)) known.set(way, curves(way));
    return known.get(way);
  }

  /** The curves stand until another way or another count is asked for. */
  function draw({ way }) {
    const { own, other } = sums(way);
    const { of, told } = METRICS[metric];
    const ends = [own, other].map((costs) => of(costs[costs.length - 1]));
    const most = Math.max(...ends.filter((end) => !Number.isNaN(end)), 1e-9);
    const last = Math.max(own.length - 1, 1);
    const points = (costs) => costs.map((cost, t) => `${((1000 * t) / last).toFixed(1)},${(1000 - (1000 * of(cost)) / most).toFixed(1)}`);
    const line = (costs, kind) => shape("polyline", { class: kind, points: points(costs).join(" ") });
    svg.replaceChildren(...(Number.isNaN(ends[1]) ? [] : [line(other, "other")]), line(own, "own"));
    top.textContent = told(most);
    const name = way.variant === null ? "this run" : way.name.replaceAll("-", " ");
    legend.replaceChildren(
      key("own", `${name}, ${told(ends[0])} in the end`),
      ...(Number.isNaN(ends[1]) ? [] : [key("other", `${against(way)}, ${told(ends[1])}`)]),
    );
    return { most, last };
  }

  let scale = null;

  function show(next) {
    view = next;
    const { way, step } = view;
    const wanted = `${run.ways.indexOf(way)} ${metric}`;
    if (wanted !== drawn) [scale, drawn] = [draw(view), wanted];
    const { own, other } = sums(way);
    const { of } = METRICS[metric];
    const [mine, theirs] = [of(own[step]), of(other[step])];
    place(cursor, step);
    for (const [kind, value] of [["own", mine], ["other", theirs]]) {
      dots[kind].hidden = Number.isNaN(value);
      place(dots[kind], step);
      dots[kind].style.top = `${100 - (100 * value) / scale.most}%`;
    }
    words.replaceChildren(...inWords(way, mine, theirs));
  }

  function place(mark, step) {
    mark.style.left = `${(100 * step) / scale.last}%`;
  }

  function inWords(way, mine, theirs) {
    const { told, unit } = METRICS[metric];
    const said = [h("b", { class: "own" }, told(mine)), " ", ...unit(), " so far"];
    if (!Number.isNaN(theirs)) return [...said, " instead of ", h("b", {}, told(theirs)), `: ${compared(way, mine, theirs)}.`];
    const why =
      run.prompts.length > 1
        ? "the prompts run together, and each alone was not timed."
        : way.variant === null
          ? "running the whole text again was not timed: record the run with --against no-cache."
          : "its turns and the steps of the cached run are not alike.";
    return [...said, `; there is nothing to compare this with: ${why}`];
  }

  return { show };
}

const against = (way) => (way.variant === null ? "running the whole text again for every token" : "the cached run");

function compared(way, mine, theirs) {
  const least = Math.min(mine, theirs);
  if (mine === theirs || least <= 0) return `as much as ${against(way)}`;
  const times = Math.max(mine, theirs) / least;
  const much = `${times < 10 ? times.toFixed(1) : count(Math.round(times))} times as much`;
  return theirs > mine ? `${against(way)} takes ${much}` : `${much} as ${against(way)}`;
}

function key(kind, text) {
  return h("span", { class: "key" }, h("i", { "data-curve": kind }), text);
}

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
