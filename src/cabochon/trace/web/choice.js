/** How the token was chosen: how many ids each part of sampling left, the best of them, and where the number fell. */

import { count, h, quoted } from "cabochon/dom.js";
import { term } from "cabochon/words.js";

/** Rows of the table before it is asked for more. */
const FIRST = 12;

export function mount(element, run) {
  let more = false;
  let last = null;
  const unfold = h("button", { type: "button", "aria-expanded": "false", onclick: () => ((more = !more), show(last)) });
  const made = h("div");
  element.append(made, unfold);

  function show(view) {
    last = view;
    const share = view.way.share(view.step, view.sequence);
    const choices = share ? share.choices : [];
    const most = Math.max(0, ...choices.map((choice) => choice.candidates.ids.length));
    unfold.hidden = most <= FIRST;
    unfold.textContent = more ? `the first ${FIRST} only` : `all ${most} listed`;
    unfold.setAttribute("aria-expanded", String(more));
    if (choices.length === 0) made.replaceChildren(h("p", { class: "quiet" }, whyNone(share)));
    else made.replaceChildren(...choices.map((choice, n) => oneChoice(run, choice, title(share, n), more)));
  }

  return { show };
}

function whyNone(share) {
  if (share === null) return "This sequence has no rows in this step.";
  return "No token is chosen in this step: the prompt is not at its end, and the logits of its rows are not needed.";
}

/** Where guesses were made a step may choose several tokens: as many as were guessed right, and one more. */
function title(share, n) {
  if (share.guesses === 0) return null;
  const guessed = n < share.choices.length - 1 ? "as guessed" : n < share.guesses ? "not as guessed" : "after the last guess";
  return h("h3", {}, `For position ${share.choices[n].position}, ${guessed}`);
}

function oneChoice(run, choice, heading, more) {
  return h("div", { class: "made" }, heading, funnel(run, choice), drawn(run, choice), table(run, choice, more));
}

/** Bars are logarithmic in the counts: from a whole vocabulary to a handful. */
function funnel(run, choice) {
  const { vocab } = run.model;
  const stages = [["vocabulary", vocab, 1]];
  if (choice.allowed < vocab) stages.push(["not allowed", choice.allowed, null, "allowed"]);
  for (const { name, kept, mass } of choice.stages) if (name !== "temperature") stages.push([name, kept, mass]);
  const rows = stages.map(([name, kept, mass, label]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, term(name, label ?? name)),
      h("td", { class: "number" }, count(kept)),
      h("td", { class: "funnel-bar", "aria-hidden": "true" }, h("i", { style: `width:${(100 * Math.log(kept + 1)) / Math.log(vocab + 1)}%` })),
      h("td", { class: "number quiet" }, mass === null ? "" : `${(100 * mass).toFixed(1)} %`),
    ),
  );
  return h(
    "table",
    { class: "funnel" },
    h("caption", {}, "Candidates left, and the share of all probability that they had before temperature"),
    h("tbody", {}, ...rows),
  );
}

/** The probabilities side by side, in order, with the drawn number on them. */
function drawn(run, choice) {
  const piece = quoted(run.piece(choice.token));
  if (choice.draw === null) {
    const lead = choice.candidates.adjusted === null ? `; it led by ${choice.margin.toFixed(3)}` : "";
    return h("p", { class: "drawn" }, term("greedy", "Greedy"), `: the largest logit is taken, ${piece}${lead}. No number is drawn.`);
  }
  const [from, to] = choice.span;
  return h(
    "div",
    { class: "drawn" },
    h(
      "div",
      { class: "sum", "aria-hidden": "true" },
      h("div", { class: "parts" }, ...partsOf(choice).map(([kind, wide]) => h("i", { class: `part ${kind}`, style: `flex:${wide} 0 0` }))),
      h("b", { class: "mark", style: `left:${100 * choice.draw}%` }),
    ),
    h("p", { class: "numbers" }, `${choice.draw.toFixed(4)} was drawn; it falls on ${piece}, which has ${from.toFixed(4)} to ${to.toFixed(4)}.`),
  );
}

/** The line from 0 to 1: [kind, share] of each candidate, and of those between and after them that are not listed. */
function partsOf(choice) {
  const { ids, probabilities, adjusted, logits } = choice.candidates;
  // Candidates are drawn from in the order of their logits after bias and penalties.
  const order = adjusted ?? logits;
  const kept = ids.map((_, n) => n).filter((n) => probabilities[n] > 0);
  kept.sort((a, b) => order[b] - order[a] || ids[a] - ids[b]);
  const parts = [];
  let sum = 0;
  const fill = (to) => {
    if (to - sum > 1e-4) {
      parts.push(["unlisted", to - sum]);
      sum = to;
    }
  };
  for (const n of kept) {
    const chosen = ids[n] === choice.token;
    if (chosen) fill(choice.span[0]);
    parts.push([chosen ? "chosen" : "", probabilities[n]]);
    sum += probabilities[n];
  }
  fill(1);
  return parts;
}

function table(run, choice, more) {
  const c = choice.candidates;
  const capped = run.model.final_softcap !== null;
  const columns = [
    ["raw logit", "raw", c.raw],
    capped ? ["soft cap", "soft cap", c.logits] : ["logit", "logit", c.logits],
    ["adjusted", "adjusted", c.adjusted],
    ["temperature", "temperature", c.scaled],
  ].filter(([, , values]) => values !== null);
  const head = [
    h("th", { scope: "col" }, "token"),
    h("th", { scope: "col", class: "number id" }, "id"),
    ...columns.map(([word, label]) => h("th", { scope: "col", class: "number" }, term(word, label))),
    h("th", { scope: "col", class: "number" }, term("probability")),
    h("th", { scope: "col" }, "removed by"),
  ];
  const shown = c.ids.map((_, n) => n).filter((n) => more || n < FIRST || c.ids[n] === choice.token);
  const rows = shown.map((n) => {
    const chosen = c.ids[n] === choice.token;
    return h(
      "tr",
      { class: chosen ? "chosen" : c.removed[n] ? "removed" : "" },
      h("th", { scope: "row" }, quoted(run.piece(c.ids[n]))),
      h("td", { class: "number quiet id" }, `${c.ids[n]}`),
      ...columns.map(([, , values]) => h("td", { class: "number" }, values[n].toFixed(3))),
      h("td", { class: "number probability" }, c.removed[n] ? "–" : c.probabilities[n].toFixed(4)),
      h("td", {}, c.removed[n] ? term(c.removed[n]) : chosen ? "chosen" : ""),
    );
  });
  const caption = capped
    ? `Logits ${c.raw === null ? "after" : "before and after"} the soft cap of ${run.model.final_softcap}, and what came of them`
    : "Logits as the model gives them (it has no soft cap), and what came of them";
  const body = [h("caption", {}, caption), h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows)];
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "candidates" }, h("table", { class: "candidates" }, ...body));
}
