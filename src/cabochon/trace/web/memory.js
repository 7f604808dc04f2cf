/**
 * The cache: positions across, layers down. Layers with a window keep a bright segment that moves on; global layers keep
 * all. Each layer is drawn as the few intervals of equal cells that it has at this step, never cell by cell.
 */

import { colours, h, interval, quoted } from "cabochon/dom.js";
import { HELD, LET_GO, NEVER, READ, STATES, WRITTEN } from "cabochon/run.js";
import { term } from "cabochon/words.js";

const LABEL = 88;
const AXIS = 20;
const WIDEST = 22;
/** Pixels a cell needs to be drawn as one. */
const CELLS_FROM = 7;

export function mount(element, run) {
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-describedby": "memory-told" });
  const told = h("p", { id: "cell", class: "numbers quiet" });
  const table = h("table", { id: "memory-told", class: "told" });
  const zoom = (factor) => () => setScale(scale * factor, room() / 2);
  element.append(
    h(
      "p",
      { class: "legend beside" },
      ...[WRITTEN, READ, HELD, LET_GO].map((state) => h("span", { class: "key" }, h("i", { "data-state": state }), STATES[state])),
      h("span", {}, `blank: ${STATES[NEVER]}`),
    ),
    h("div", { class: "canvas-box" }, canvas),
    h(
      "div",
      { class: "controls" },
      h("button", { type: "button", "aria-label": "zoom out", onclick: zoom(0.6) }, "−"),
      h("button", { type: "button", "aria-label": "zoom in", onclick: zoom(1.7) }, "+"),
      h("button", { type: "button", onclick: () => fit() }, "fit"),
      told,
    ),
    table,
  );
  let view = null;
  let shown = "";
  /** Pixels for one position, and the first position at the left border. */
  let scale = 0;
  let offset = 0;
  let cell = null;
  const high = run.layers > 40 ? 9 : run.layers > 24 ? 11 : 14;
  canvas.style.height = `${AXIS + run.layers * high + 2}px`;

  /** Asked for again only when it changes: reading it makes the browser lay out the page. */
  let size = [0, 0];
  const measure = () => (size = [canvas.clientWidth, canvas.clientHeight]);
  const room = () => size[0] - LABEL;
  const length = () => view.way.length(view.sequence);

  function fit() {
    scale = Math.min(room() / length(), WIDEST);
    offset = 0;
    draw();
  }

  /** Zooms so that the position under pixel `x` of the room stays there. */
  function setScale(next, x) {
    const position = offset + x / scale;
    scale = Math.min(Math.max(next, room() / length()), WIDEST);
    setOffset(position - x / scale);
  }

  function setOffset(next) {
    offset = Math.min(Math.max(next, 0), Math.max(length() - room() / scale, 0));
    draw();
  }

  function draw() {
    if (view === null || size[0] === 0) return;
    const ratio = devicePixelRatio;
    const [width, height] = size;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const ink = colours("ink", "muted", "line", "accent", "soft", "ground", "held");
    pen.font = "11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
    axis(pen, ink, width);
    for (let layer = 0; layer < run.layers; layer++) drawLayer(pen, ink, layer);
    drawPages(pen, ink);
    if (cell !== null) mark(pen, ink);
  }

  const x = (position) => LABEL + (position - offset) * scale;

  function axis(pen, ink, width) {
    const every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048].find((n) => n * scale > 46) ?? 4096;
    pen.textBaseline = "middle";
    const last = Math.min(length(), Math.ceil(offset + room() / scale));
    for (let p = Math.ceil(offset / every) * every; p < last; p += every) {
      pen.fillStyle = ink.muted;
      if (x(p) + 20 < width) pen.fillText(`${p}`, x(p) + 1, AXIS / 2 - 2);
    }
  }

  /** Where pages begin: a tick above the layers, and a seam through them where it does not hide them. */
  function drawPages(pen, ink) {
    const pages = run.page * scale < 8 ? run.page * 8 : run.page;
    const last = Math.min(length(), Math.ceil(offset + room() / scale));
    for (let p = Math.ceil(offset / pages) * pages; p < last; p += pages) {
      const left = Math.round(x(p));
      pen.fillStyle = ink.held;
      pen.fillRect(left, AXIS - 6, 1, 4);
      if (scale >= CELLS_FROM || p === 0) continue;
      pen.fillStyle = ink.ground;
      pen.fillRect(left, AXIS, 1, run.layers * high);
    }
  }

  function drawLayer(pen, ink, layer) {
    const top = AXIS + layer * high;
    const window = run.groups[run.groupOf[layer]].window;
    pen.fillStyle = window === null ? ink.ink : ink.muted;
    pen.fillText(`${String(layer).padStart(2)} ${window === null ? "global" : "sliding"}`, 0, top + high / 2);
    const cells = scale >= CELLS_FROM;
    for (const [state, first, end] of view.way.intervals(layer, view.step, view.sequence)) {
      const left = Math.max(first, Math.floor(offset));
      const right = Math.min(end, Math.ceil(offset + room() / scale));
      if (right <= left) continue;
      if (!cells) {
        paint(pen, ink, state, x(left), top + 1, Math.max((right - left) * scale, state === WRITTEN ? 2 : 0.5), high - 2);
        continue;
      }
      for (let p = left; p < right; p++) paint(pen, ink, state, x(p) + 0.5, top + 1, scale - 1.5, high - 2.5);
    }
  }

  /** The states differ in form as well as in colour. */
  function paint(pen, ink, state, left, top, wide, tall) {
    if (left < LABEL) [wide, left] = [wide - (LABEL - left), LABEL];
    if (wide <= 0) return;
    if (state === WRITTEN || state === READ) {
      pen.fillStyle = state === WRITTEN ? ink.accent : ink.soft;
      pen.fillRect(left, top, wide, tall);
      return;
    }
    pen.strokeStyle = ink.held;
    pen.lineWidth = 1;
    if (state === HELD) {
      pen.strokeRect(left + 0.5, top + 0.5, Math.max(wide - 1, 0.5), tall - 1);
      return;
    }
    // Let go: strokes from below to above, clipped to the place.
    pen.save();
    pen.beginPath();
    pen.rect(left, top, wide, tall);
    pen.clip();
    pen.beginPath();
    for (let at = left - tall - (left % 4); at < left + wide; at += 4) {
      pen.moveTo(at, top + tall);
      pen.lineTo(at + tall, top);
    }
    pen.strokeStyle = ink.held;
    pen.stroke();
    pen.restore();
  }

  function mark(pen, ink) {
    const [layer, position] = cell;
    if (position < offset || x(position) > size[0]) return;
    pen.strokeStyle = ink.ink;
    pen.lineWidth = 1.5;
    pen.strokeRect(x(position) - 0.5, AXIS + layer * high, Math.max(scale, 3), high);
  }

  /** Says all about the marked cell. */
  function tell() {
    if (cell === null) {
      told.textContent = "point at a cell, or walk over the picture with the arrow keys";
      return;
    }
    const [layer, position] = cell;
    const { way, step, sequence } = view;
    const state = way.state(layer, position, step, sequence);
    const id = way.texts[sequence][position];
    const what = `layer ${layer}, position ${position}${id === undefined ? "" : ` ${quoted(run.piece(id))}`}: ${STATES[state]}`;
    if (state === NEVER) {
      told.textContent = what;
      return;
    }
    const slot = way.slotOf(run.groupOf[layer], position, step, sequence);
    const where = slot === null ? "" : `; page ${slot.page}, slot ${slot.place}`;
    const times = way.timesRead(layer, position, step, sequence);
    told.textContent = `${what}${where}; written in step ${way.writtenAt(position, step, sequence)}, read in ${times} steps so far`;
  }

  function point(next) {
    cell = next;
    draw();
    tell();
  }

  function cellAt(event) {
    const layer = Math.floor((event.offsetY - AXIS) / high);
    const position = Math.floor(offset + (event.offsetX - LABEL) / scale);
    const inside = event.offsetX >= LABEL && layer >= 0 && layer < run.layers && position < length();
    return inside ? [layer, position] : null;
  }

  /** Where fingers, or the mouse with its button down, are on the canvas: [id] of pixels from the left. */
  const held = new Map();
  canvas.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, event.offsetX);
    canvas.setPointerCapture(event.pointerId);
    point(cellAt(event));
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => held.delete(event.pointerId));
  canvas.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) {
      point(cellAt(event));
      return;
    }
    const [before, was] = [[...held.values()], held.get(event.pointerId)];
    held.set(event.pointerId, event.offsetX);
    const now = [...held.values()];
    // One drags, two pinch: what was between them stays there.
    if (now.length === 1) setOffset(offset - (event.offsetX - was) / scale);
    else setScale((scale * Math.abs(now[1] - now[0])) / Math.max(Math.abs(before[1] - before[0]), 1), (now[0] + now[1]) / 2 - LABEL);
  });
  canvas.addEventListener("pointerleave", (event) => {
    // A finger that is lifted leaves too, but what it touched is still asked for.
    if (event.pointerType === "mouse" && document.activeElement !== canvas) point(null);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      setScale(scale * (event.deltaY < 0 ? 1.25 : 0.8), event.offsetX - LABEL);
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (!(event.key in moves)) return;
    const [layer, position] = cell ?? [0, view.way.tracks[view.sequence].end[view.step] - 1];
    const [down, right] = cell === null ? [0, 0] : moves[event.key];
    point([Math.min(Math.max(layer + down, 0), run.layers - 1), Math.min(Math.max(position + right, 0), length() - 1)]);
    event.preventDefault();
  });
  canvas.addEventListener("blur", () => point(null));
  new ResizeObserver(() => {
    measure();
    if (view === null) return;
    if (offset === 0) fit();
    else draw();
  }).observe(canvas);

  /** The same in words: one line for each kind of layer. */
  function fillTable() {
    const { way, step, sequence } = view;
    const lines = run.groups.map((group, g) => {
      // A layer that is not the last one: of that only the row that gives logits looks at keys.
      const layer = group.layers.find((l) => l !== run.layers - 1) ?? group.layers[0];
      const parts = Object.fromEntries([WRITTEN, READ, HELD, LET_GO].map((state) => [state, []]));
      for (const [state, first, end] of way.intervals(layer, step, sequence)) parts[state].push(interval(first, end - 1));
      const cells = [WRITTEN, READ, HELD, LET_GO].map((state) => h("td", { "data-state": state }, parts[state].join(", ") || "–"));
      return h("tr", { "data-group": g }, h("th", { scope: "row" }, `${group.layers.length} ${run.kind(g)}`), ...cells);
    });
    const heads = [WRITTEN, READ, HELD, LET_GO].map((state) => h("th", { scope: "col" }, STATES[state]));
    table.replaceChildren(
      h("caption", {}, "Positions of ", term("keys and values"), " in each kind of layer"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "layers"), ...heads)),
      h("tbody", {}, ...lines),
    );
    canvas.setAttribute("aria-label", `memory at step ${step}: ${run.layers} layers, ${way.tracks[sequence].stored[step]} positions stored`);
  }

  function show(next) {
    view = next;
    if (size[0] === 0) measure();
    const now = `${next.way.name} ${next.sequence}`;
    if (now !== shown) fit();
    shown = now;
    // What is written stays in sight.
    const newest = next.way.tracks[next.sequence].end[next.step];
    if (newest > offset + room() / scale) setOffset(newest - (0.9 * room()) / scale);
    draw();
    tell();
    fillTable();
  }

  return { show };
}
