/** A step in words: plain, one or two sentences; or exact, with ids, shapes and formulas. */

import { bytes, count, h, interval, quoted } from "cabochon/dom.js";
import { spanOf, valuesOf } from "cabochon/run.js";
import { term } from "cabochon/words.js";

const between = (first, last) => (first === last ? `position ${first}` : `positions ${first} to ${last}`);

/** What the step did, as anyone would say it. */
export function plain(run, { way, step, sequence }) {
  const share = way.share(step, sequence);
  if (share === null) return `This sequence has no rows in step ${step}.`;
  const [first, last] = spanOf(share.positions);
  const parts = [goesIn(run, way, share, first, last), looksBack(run, share)];
  for (const choice of share.choices) {
    parts.push(
      choice.ends === "stop"
        ? "Then the model ends the text."
        : `Chosen for position ${choice.position}: ${chosenInWords(run, way, choice, sequence)}.`,
    );
  }
  if (share.choices.length === 0 && way.name === "cached") parts.push("Nothing is chosen yet: the prompt goes on.");
  return parts.join(" ");
}

/** The chosen token; of a variant that chose another one also what the cached run has there. */
export function chosenInWords(run, way, choice, sequence) {
  const instead = way.insteadOf(choice, sequence);
  return quoted(run.piece(choice.token)) + (instead === null ? "" : `, where the cached run chose ${quoted(run.piece(instead))}`);
}

function goesIn(run, way, share, first, last) {
  if (share.ids.length === 1) {
    const slots = [...new Set(share.slots.map((runs) => slotName(run, runs)))].join(" and ");
    return `Token ${quoted(run.piece(share.ids[0]))} goes in alone, at position ${first}. Its key and value are written in slot ${slots}.`;
  }
  if (share.guesses > 0) {
    const known = share.ids.length - share.guesses;
    return `${count(share.ids.length)} tokens go in at ${between(first, last)}: ${known} known, ${share.guesses} guessed from the text itself.`;
  }
  const what = way.name === "no-cache" || way.name === "concat" ? "The whole text goes in once more" : "The prompt goes in";
  return `${what}: ${count(share.ids.length)} tokens at ${between(first, last)}, all in one step. Their keys and values are stored.`;
}

function looksBack(run, share) {
  const seen = run.groups.map((_, g) => [spanOf(share.first_key[g])[0], spanOf(share.last_key[g])[1]]);
  const who = share.ids.length === 1 ? "It looks" : "The rows look";
  const alike = seen.every(([low, high]) => low === seen[0][0] && high === seen[0][1]);
  if (alike) return `${who} back at ${between(seen[0][0], seen[0][1])}.`;
  const each = run.groups.map((group, g) => `${group.window === null ? "global" : "sliding"} layers at ${between(...seen[g])}`);
  return `${who} back: ${each.join(", ")}.`;
}

function slotName(run, runs) {
  const [slot] = valuesOf(runs);
  return `${Math.floor(slot / run.page)}:${slot % run.page}`;
}

/** What went in and out, with shapes. Letters are those of the notation: T rows, H query heads, G key/value heads, E head size. */
function exact(run, { way, step, sequence }) {
  const share = way.share(step, sequence);
  if (share === null) return [];
  const T = share.ids.length;
  const { heads: H, hidden: D, vocab: V } = run.model;
  const listed = (values) => (values.length > 8 ? `${values.slice(0, 6).join(", ")}, … ${values[values.length - 1]}` : values.join(", "));
  const lines = [
    ["ids", `[T=${T}] int32: ${listed(share.ids)}`],
    ["positions", `[T=${T}] int32: ${listed(valuesOf(share.positions))}; angle of pair i at position p: p · θ^(−2i/E)`],
  ];
  run.groups.forEach((group, g) => {
    const { kv_heads: G, head_dim: E } = group;
    const [low, high] = [spanOf(share.first_key[g])[0], spanOf(share.last_key[g])[1]];
    lines.push([
      `${run.kind(g)} layers`,
      `slots [T=${T}]: ${listed(valuesOf(share.slots[g]))}; q [${T}, H=${H}, E=${E}] against k, v [${count(high - low + 1)}, G=${G}, E=${E}] ` +
        `of keys ${interval(low, high)}; written k, v [${T}, ${G}, ${E}] in ${run.model.kv_type}, ${bytes(T * group.position_bytes)} a layer`,
    ]);
  });
  lines.push(["hidden", `[T=${T}, D=${D}] float32 through ${run.layers} layers; logits [R=${share.choices.length}, V=${count(V)}]`]);
  lines.push(["attention", "softmax(q · k) over the keys of the mask row, then the weighted sum of v; keys are turned before they are stored, once"]);
  const { cost } = way.steps[step];
  lines.push([
    "whole step",
    `${count(cost.tokens)} rows, ${count(cost.pairs)} query-key pairs, ${bytes(cost.bytes_read)} of K/V read, ${bytes(cost.bytes_written)} written, ` +
      `${(way.steps[step].seconds * 1000).toFixed(1)} ms`,
  ]);
  return lines;
}

/** Puts the sentence into its place, in the voice that was asked for. */
export function fillSentence(element, run, view, voice) {
  const share = view.way.share(view.step, view.sequence);
  const phase = share ? h("span", { class: "phase" }, term(share.phase)) : null;
  const say = h("p", { class: "plain" }, ...(phase ? [phase, " "] : []), plain(run, view));
  const list = h("dl", { class: "exact numbers" }, ...exact(run, view).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
  element.replaceChildren(...(voice === "exact" ? [say, list] : [say]));
}
