/**
 * The text as tokens on a reading line: what goes in is filled, what is looked back at is tinted, what is chosen is framed,
 * what comes later is faint. The colours are those of the memory, where the same positions stand.
 */

import { go, h, interval, quoted } from "cabochon/dom.js";
import { lastOf } from "cabochon/run.js";
import { chosenInWords } from "cabochon/sentence.js";

/** Pixels from line to line and above the first (see `.line` in the style), and lines that stay in sight before the lit one. */
const LEADING = 36;
const EDGE = 8;
const LINES_ABOVE = 2;

/** Spaces and line ends that a reader should still see. */
function visible(piece) {
  return piece.replaceAll(" ", "\u00a0").replaceAll("\n", "⏎\u200b").replaceAll("\t", "⇥\u200b");
}

export function mount(element, run) {
  const info = h("p", { class: "quiet numbers", id: "token-info" });
  const lines = h("div", { class: "lines" });
  const cachedToo = key("other", "chosen by the cached run only");
  element.append(legend(cachedToo), lines, info);
  /** The way whose tokens are there, and their elements: [sequence][position]. */
  let shown = null;
  let chips = [];
  let lit = [];
  /** [sequence]: at each step, where what is yet to come begins; and the two numbers over the line. */
  let known = [];
  let labels = [];

  function chip(way, sequence, position) {
    const id = way.texts[sequence][position];
    const told = () => (info.textContent = describe(run, way, sequence, position));
    const piece = run.piece(id);
    const given = position < run.prompts[sequence].ids.length;
    return h(
      "button",
      {
        type: "button",
        class: `token${given ? " given" : ""}${piece.trim() === "" ? " blank" : ""}`,
        tabindex: -1,
        "data-position": position,
        "aria-label": `position ${position}: ${piece.trim() || quoted(piece)}`,
        onclick: () => go(element, { step: way.stepOf(position, sequence), sequence }),
        onmouseenter: told,
        onfocus: told,
      },
      visible(piece),
    );
  }

  function build(way) {
    shown = way;
    lit = [];
    known = way.texts.map((_, sequence) => knownOf(way, sequence));
    labels = way.texts.map(() => [0, 1].map(() => h("b", { class: "at", "aria-hidden": "true" })));
    chips = way.texts.map((text, sequence) => text.map((_, position) => chip(way, sequence, position)));
    lines.replaceChildren(
      ...chips.map((buttons, sequence) => {
        const name = way.sequences > 1 ? focusButton(sequence) : null;
        const tokens = h("div", {}, name, ...buttons);
        return h("div", { class: "line", "data-sequence": sequence, role: "group", onkeydown: walk }, tokens, ...labels[sequence]);
      }),
    );
    for (const buttons of chips) if (buttons[0]) buttons[0].tabIndex = 0;
  }

  function focusButton(sequence) {
    const label = `look at sequence ${sequence}`;
    return h("button", { type: "button", class: "sequence-name", "aria-label": label, onclick: () => go(element, { sequence }) }, `${sequence}`);
  }

  /** Arrow keys walk along a line whose tokens are one stop of the tab key. */
  function walk(event) {
    const move = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[event.key];
    const next = move && event.target[move];
    if (!next || !next.classList.contains("token")) return;
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  }

  function light(button, kind) {
    if (!button) return;
    button.dataset.now = kind;
    lit.push(button);
  }

  /**
   * Tints what is looked back at, and makes faint what is yet to come. As highlights, where browsers have them: a class on
   * each of thousands of tokens takes them a frame.
   */
  function shade(way, step) {
    if (!CSS.highlights) return;
    const seen = chips.map((buttons, s) => {
      const { low, start } = way.tracks[s];
      const first = Math.max(Math.min(...low.map((lows) => lows[step])), 0);
      return between(buttons, first, way.share(step, s) ? start[step] : 0);
    });
    CSS.highlights.set("seen", new Highlight(...seen));
    CSS.highlights.set("later", new Highlight(...chips.map((buttons, s) => between(buttons, known[s][step], buttons.length))));
  }

  /**
   * Numbers the first and the last of the tokens that go in, with the positions that the model is told: labels over the line,
   * so that the line keeps its layout.
   */
  function number(way, step, sequence) {
    const [start, end] = [way.tracks[sequence].start[step], way.tracks[sequence].end[step]];
    const positions = way.share(step, sequence)?.positions;
    const ends = positions ? [[start, positions[0][0]], [end - 1, lastOf(positions)]] : [];
    labels[sequence].forEach((label, n) => {
      const [place, position] = ends[n] ?? [];
      const button = chips[sequence][place];
      label.hidden = !button || (n === 1 && start === end - 1);
      if (label.hidden) return;
      label.textContent = `${position}`;
      label.classList.toggle("wrong", position !== place);
      label.style.left = `${button.offsetLeft}px`;
      label.style.top = `${button.offsetTop}px`;
    });
  }

  function show({ way, step, sequence }) {
    if (way !== shown) build(way);
    for (const button of lit) delete button.dataset.now;
    lit = [];
    chips.forEach((buttons, s) => {
      const track = way.tracks[s];
      for (let position = track.start[step]; position < track.end[step]; position++) light(buttons[position], "in");
      for (const choice of way.share(step, s)?.choices ?? []) {
        light(buttons[choice.position], way.insteadOf(choice, s) === null ? "out" : "other");
      }
    });
    shade(way, step);
    chips.forEach((_, s) => number(way, step, s));
    cachedToo.hidden = way.variant === null;
    [...lines.children].forEach((line, s) => line.classList.toggle("focused", s === sequence));
    const share = way.share(step, sequence);
    info.textContent = share
      ? `in at ${interval(way.tracks[sequence].start[step], way.tracks[sequence].end[step] - 1)}` +
        share.choices.map((choice) => `; chosen for ${choice.position}: ${chosenInWords(run, way, choice, sequence)}`).join("")
      : "this sequence has no rows in this step";
    // Only the line itself scrolls, never the page; by whole lines, so that none is cut.
    const last = chips[sequence][way.tracks[sequence].end[step] - 1];
    const box = lines.children[sequence];
    if (!last || box.scrollHeight <= box.clientHeight) return;
    const above = Math.floor(last.offsetTop / LEADING) - LINES_ABOVE;
    box.scrollTop = above > 0 ? above * LEADING + EDGE : 0;
  }

  return { show };
}

const key = (kind, word) => h("span", { class: "key" }, h("i", { "data-token": kind }), word);

/** What the looks of tokens mean. */
function legend(cachedToo) {
  return h(
    "p",
    { class: "legend beside" },
    key("in", "goes in"),
    key("seen", "looked back at"),
    key("out", "chosen"),
    cachedToo,
    h("span", { class: "given" }, "prompt"),
    h("span", { class: "reply" }, "reply"),
  );
}

/** The tokens from one up to another. */
function between(buttons, first, end) {
  const range = new Range();
  if (first >= end || !buttons[first]) return range;
  range.setStartBefore(buttons[first]);
  range.setEndAfter(buttons[Math.min(end, buttons.length) - 1]);
  return range;
}

/** Of each step, how many tokens of a sequence are known when it is over: the prompt, and what has been chosen. */
function knownOf(way, sequence) {
  let most = way.run.prompts[sequence].ids.length;
  return way.steps.map((_, t) => {
    for (const choice of way.share(t, sequence)?.choices ?? []) most = Math.max(most, choice.position + 1);
    return most;
  });
}

function describe(run, way, sequence, position) {
  const id = way.texts[sequence][position];
  const chosen = way.chosen[sequence][position];
  const how = chosen === undefined ? ", given" : `, chosen in step ${chosen.step}, log-probability ${chosen.choice.logprob.toFixed(3)}`;
  return `position ${position}: ${quoted(run.piece(id))}, id ${id}${how}`;
}
