/** The text as tokens on a reading line: what goes in is lit, what is chosen is framed, what comes later is faint. */

import { go, h, interval, quoted } from "cabochon/dom.js";
import { chosenInWords } from "cabochon/sentence.js";

/** Spaces and line ends that a reader should still see. */
function visible(piece) {
  return piece.replaceAll(" ", "\u00a0").replaceAll("\n", "⏎\u200b").replaceAll("\t", "⇥\u200b");
}

export function mount(element, run) {
  const info = h("p", { class: "quiet numbers", id: "token-info" });
  const lines = h("div", { class: "lines" });
  element.append(lines, info);
  /** The way whose tokens are there, and their elements: [sequence][position]. */
  let shown = null;
  let chips = [];
  let lit = [];

  function chip(way, sequence, position) {
    const id = way.texts[sequence][position];
    const told = () => (info.textContent = describe(run, way, sequence, position));
    const piece = run.piece(id);
    return h(
      "button",
      {
        type: "button",
        class: position < run.prompts[sequence].ids.length ? "token given" : "token",
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
    chips = way.texts.map((text, sequence) => text.map((_, position) => chip(way, sequence, position)));
    lines.replaceChildren(
      ...chips.map((buttons, sequence) => {
        const name = way.sequences > 1 ? focusButton(sequence) : null;
        return h("div", { class: "line", "data-sequence": sequence, role: "group", onkeydown: walk }, name, ...buttons);
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

  function show({ way, step, sequence }) {
    if (way !== shown) build(way);
    for (const button of lit) delete button.dataset.now;
    lit = [];
    chips.forEach((buttons, s) => {
      const track = way.tracks[s];
      const share = way.share(step, s);
      const known = share && share.choices.length ? share.choices[share.choices.length - 1].position + 1 : track.stored[step];
      buttons.forEach((button, position) => button.classList.toggle("later", position >= Math.max(known, run.prompts[s].ids.length)));
      if (share === null) return;
      for (let position = track.start[step]; position < track.end[step]; position++) light(buttons[position], "in");
      for (const choice of share.choices) light(buttons[choice.position], way.insteadOf(choice, s) === null ? "out" : "other");
    });
    lines.querySelectorAll(".line").forEach((line, s) => line.classList.toggle("focused", s === sequence));
    const share = way.share(step, sequence);
    info.textContent = share
      ? `in at ${interval(way.tracks[sequence].start[step], way.tracks[sequence].end[step] - 1)}` +
        share.choices.map((choice) => `; chosen for ${choice.position}: ${chosenInWords(run, way, choice, sequence)}`).join("")
      : "this sequence has no rows in this step";
    const first = chips[sequence][way.tracks[sequence].start[step]];
    // Only the line itself scrolls, never the page.
    const box = lines.querySelectorAll(".line")[sequence];
    if (first && box) box.scrollTop = first.offsetTop - box.clientHeight / 2;
  }

  return { show };
}

function describe(run, way, sequence, position) {
  const id = way.texts[sequence][position];
  const chosen = way.chosen[sequence][position];
  const how = chosen === undefined ? ", given" : `, chosen in step ${chosen.step}, log-probability ${chosen.choice.logprob.toFixed(3)}`;
  return `position ${position}: ${quoted(run.piece(id))}, id ${id}${how}`;
}
