/** What the run has cost so far, beside what running the whole text again for every token would have. */

import { bytes, count, h } from "cabochon/dom.js";

const METRICS = {
  tokens: { label: "tokens run", of: (cost) => cost.tokens, show: count },
  pairs: { label: "query-key pairs", of: (cost) => cost.pairs, show: count },
  bytes: { label: "K/V bytes read and written", of: (cost) => cost.bytes_read + cost.bytes_written, show: bytes },
  seconds: { label: "seconds", of: (cost) => cost.seconds, show: (s) => `${s.toFixed(2)} s` },
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
    const of_group = all * (group.layers.length - lasts) + one * lasts;
    keys += of_group;
    read += of_group * group.position_bytes;
    written += rows * group.layers.length * group.position_bytes;
  }
  return { tokens: rows, pairs: keys * run.model.heads, bytes_read: read, bytes_written: written, seconds: NaN };
}

/** Sums up to and with each step: of the way itself, and of what it is held against. */
export function curves(way) {
  const { run } = way;
  const again = run.ways.find((other) => other.name === "no-cache");
  const own = [];
  const other = [];
  let [mine, theirs] = [NOTHING, NOTHING];
  let turn = 0;
  for (const step of way.steps) {
    mine = add(mine, { ...step.cost, seconds: step.seconds });
    for (const share of step.shares) {
      for (const choice of share.choices) {
        const end = choice.position;
        if (way.variant === null) {
          const timed = run.prompts.length === 1 && again ? again.steps[turn].seconds : NaN;
          theirs = add(theirs, { ...costOfRows(run, 0, end), seconds: timed });
        } else {
          const first = turn === 0 ? 0 : end - 1;
          theirs = add(theirs, { ...costOfRows(run, first, end), seconds: NaN });
        }
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
  let last = null;
  const known = new Map(run.ways.map((way) => [way, curves(way)]));
  const picker = h("select", { "aria-label": "what is counted", onchange: (event) => ((metric = event.target.value), show(last)) });
  picker.append(...Object.entries(METRICS).map(([name, { label }]) => h("option", { value: name }, label)));
  const canvas = h("canvas", { class: "curves", "aria-hidden": "true" });
  const words = h("p", { id: "cost-words", class: "in-words" });
  const total = h("p", { class: "quiet" });
  element.append(h("div", { class: "controls" }, picker), canvas, words, total);
  new ResizeObserver(() => last && draw()).observe(canvas);

  function draw() {
    const { way, step } = last;
    const { own, other } = known.get(way);
    const ratio = devicePixelRatio;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(`--${name}`).trim();
    const { of } = METRICS[metric];
    const top = Math.max(of(own[own.length - 1]), of(other[other.length - 1]) || 0, 1e-9);
    const x = (t) => (own.length === 1 ? width / 2 : (t * (width - 4)) / (own.length - 1) + 2);
    const y = (value) => height - 3 - (value / top) * (height - 10);
    pen.strokeStyle = ink("line");
    pen.beginPath();
    pen.moveTo(x(step), 0);
    pen.lineTo(x(step), height);
    pen.stroke();
    for (const [values, colour, dash] of [
      [other, ink("muted"), [5, 4]],
      [own, ink("accent"), []],
    ]) {
      if (Number.isNaN(of(values[values.length - 1]))) continue;
      pen.strokeStyle = colour;
      pen.fillStyle = colour;
      pen.lineWidth = 2;
      pen.setLineDash(dash);
      pen.beginPath();
      values.forEach((value, t) => pen.lineTo(x(t), y(of(value))));
      pen.stroke();
      pen.setLineDash([]);
      pen.beginPath();
      pen.arc(x(step), y(of(values[step])), 3.5, 0, 7);
      pen.fill();
    }
  }

  function show(view) {
    last = view;
    const { way, step } = view;
    const { own, other } = known.get(way);
    const { of, show: told, label } = METRICS[metric];
    const [mine, theirs] = [of(own[step]), of(other[step])];
    const against = way.variant === null ? "running the whole text again for every token" : "the cached run";
    words.replaceChildren(
      h("b", { class: "own" }, told(mine)),
      ` ${label} so far`,
      Number.isNaN(theirs)
        ? "; the other way was not timed: record it with --against no-cache"
        : `, instead of `,
      Number.isNaN(theirs) ? "" : h("b", {}, told(theirs)),
      Number.isNaN(theirs) ? "." : ` by ${against}${ratio(mine, theirs)}.`,
    );
    const n = own.length - 1;
    const [all, allOther] = [of(own[n]), of(other[n])];
    total.textContent = `Whole run: ${told(all)}${Number.isNaN(allOther) ? "" : ` against ${told(allOther)}`}.`;
    draw();
  }

  return { show };
}

function ratio(mine, theirs) {
  if (!(mine > 0 && theirs > 0) || mine === theirs) return "";
  return theirs > mine ? ` (${(theirs / mine).toFixed(1)} times as many)` : ` (${(mine / theirs).toFixed(1)} times fewer)`;
}
