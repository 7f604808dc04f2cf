/** How the token was chosen: how many ids each part of sampling left, the best of them, and where the number fell. */

import { count, h, quoted } from "cabochon/dom.js";
import { term } from "cabochon/words.js";

/** Rows of the table before it is asked for more. */
const FIRST = 12;

export function mount(element, run) {
  let more = false;
  let last = null;
  const unfold = h("button", { type: "button", onclick: () => ((more = !more), show(last)) });

  function show(view) {
    last = view;
    const share = view.way.share(view.step, view.sequence);
    const choices = share ? share.choices : [];
    if (choices.length === 0) {
      const why = share
        ? share.phase === "prefill"
          ? "No token is chosen in this step: the prompt is not at its end, and the logits of its rows are not needed."
          : "No token could be chosen in this step."
        : "This sequence has no rows in this step.";
      element.replaceChildren(h("p", { class: "quiet" }, why));
      return;
    }
    const most = Math.max(...choices.map((choice) => choice.candidates.ids.length));
    unfold.textContent = more ? "fewer" : `all ${most} listed`;
    element.replaceChildren(
      ...choices.map((choice) => made(choice, choices.length > 1)),
      ...(most > FIRST ? [unfold] : []),
    );
  }

  function made(choice, several) {
    const title = several ? h("h3", {}, `for position ${choice.position}`) : null;
    return h("div", { class: "made" }, title, funnel(choice), drawn(choice), table(choice));
  }

  /** Bars are logarithmic in the counts: from a whole vocabulary to a handful. */
  function funnel(choice) {
    const vocab = run.model.vocab;
    const stages = [["vocabulary", vocab, 1]];
    if (choice.allowed < vocab) stages.push(["not allowed", choice.allowed, null, "allowed"]);
    for (const stage of choice.stages) if (stage.name !== "temperature") stages.push([stage.name, stage.kept, stage.mass]);
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
      h("caption", {}, "Candidates left, and their share of all probability"),
      h("tbody", {}, ...rows),
    );
  }

  /** The probabilities side by side, in order, with the drawn number on them. */
  function drawn(choice) {
    const piece = quoted(run.piece(choice.token));
    if (choice.draw === null) {
      return h("p", { class: "drawn" }, term("greedy", "Greedy"), `: the largest logit is taken, ${piece}; it led by ${choice.margin.toFixed(3)}.`);
    }
    const { ids, probabilities } = choice.candidates;
    const parts = ids
      .map((id, n) => ({ id, p: probabilities[n] }))
      .filter(({ p }) => p > 0)
      .sort((a, b) => order(choice, a.id) - order(choice, b.id))
      .map(({ id, p }) => h("i", { class: id === choice.token ? "part chosen" : "part", style: `flex:${p} 0 0` }));
    const rest = 1 - probabilities.reduce((sum, p) => sum + p, 0);
    if (rest > 1e-4) parts.push(h("i", { class: "part unlisted", style: `flex:${rest} 0 0` }));
    return h(
      "div",
      { class: "drawn" },
      h(
        "div",
        { class: "sum", "aria-hidden": "true" },
        h("div", { class: "parts" }, ...parts),
        h("b", { class: "mark", style: `left:${100 * choice.draw}%` }),
      ),
      h(
        "p",
        { class: "numbers" },
        `${choice.draw.toFixed(4)} was drawn; it falls on ${piece}, which has ${choice.span[0].toFixed(4)} to ${choice.span[1].toFixed(4)}.`,
      ),
    );
  }

  /** Candidates are drawn from in the order of their logits after bias and penalties. */
  function order(choice, id) {
    const { ids, adjusted, logits } = choice.candidates;
    return -(adjusted ?? logits)[ids.indexOf(id)];
  }

  function table(choice) {
    const c = choice.candidates;
    const columns = [
      ["raw", c.raw],
      [run.model.final_softcap === null ? "logit" : "soft cap", c.logits],
      ["adjusted", c.adjusted],
      ["temperature", c.scaled],
    ].filter(([, values]) => values !== null);
    const head = [
      h("th", { scope: "col" }, "token"),
      h("th", { scope: "col", class: "number" }, "id"),
      ...columns.map(([name]) => h("th", { scope: "col", class: "number" }, term(name))),
      h("th", { scope: "col", class: "number" }, "probability"),
      h("th", { scope: "col" }, "removed by"),
    ];
    const shown = c.ids.map((_, n) => n).filter((n) => more || n < FIRST || c.ids[n] === choice.token);
    const rows = shown.map((n) =>
      h(
        "tr",
        { class: c.ids[n] === choice.token ? "chosen" : c.removed[n] ? "removed" : "" },
        h("th", { scope: "row" }, quoted(run.piece(c.ids[n]))),
        h("td", { class: "number quiet" }, `${c.ids[n]}`),
        ...columns.map(([, values]) => h("td", { class: "number" }, values[n].toFixed(3))),
        h("td", { class: "number probability" }, c.removed[n] ? "–" : c.probabilities[n].toFixed(4)),
        h("td", {}, c.removed[n] ? term(c.removed[n]) : c.ids[n] === choice.token ? "chosen" : ""),
      ),
    );
    return h("div", { class: "scroll" }, h("table", { class: "candidates" }, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows)));
  }

  return { show };
}
