/** A step in words, as anyone would say it. The exact voice adds shapes, ids and formulas (`exact.js`). */

import { count, h, quoted } from "cabochon/dom.js";
import { exact } from "cabochon/exact.js";
import { lastOf, spanOf, valuesOf } from "cabochon/run.js";
import { term } from "cabochon/words.js";

const between = (first, last) => (first === last ? `${first}` : `${first} to ${last}`);
const name = (run, id) => quoted(run.piece(id).trim() || run.piece(id));
const kind = (group) => (group.window === null ? "global" : "sliding");
const percent = (p) => (p < 0.001 ? "less than 0.1\u00a0%" : `${(100 * p).toFixed(p < 0.1 ? 1 : 0)}\u00a0%`);

/** A word that can be looked up, inside a sentence. */
const word = (entry, label = entry) => ({ entry, label });

/**
 * The sentences of a step, in pieces: texts, and words that can be looked up.
 *
 * @returns {(string | {entry: string, label: string})[]}
 */
function sentences(run, { way, step, sequence }) {
  const share = way.share(step, sequence);
  if (share === null) return [`Sequence ${sequence} has no rows in step ${step}.`];
  return [
    ...goesIn(run, way, share, step),
    ...looksBack(run, way, share, step),
    ...isChosen(run, way, share, sequence),
    ...isLetGo(run, way, step, sequence),
    ...inCompany(way, step, share),
  ];
}

/** What the step did, for a screen reader. */
export function plain(run, view) {
  return sentences(run, view)
    .map((part) => part.label ?? part)
    .join("");
}

/** The keys that a share's rows stored: start <= key < end. */
function own(way, share, step) {
  const track = way.tracks[share.sequence];
  return [track.start[step], track.end[step]];
}

function goesIn(run, way, share, step) {
  const [start, end] = own(way, share, step);
  const [first, last] = spanOf(share.positions);
  const rows = share.ids.length;
  const at = [" at ", word("position", rows === 1 ? "position" : "positions"), ` ${between(first, last)}`];
  if (rows === 1) {
    const told =
      first === start ? [...at, ". "] : [`. It stands at position ${start} but is told `, word("position"), ` ${first}, so it is turned by a wrong angle. `];
    return ["Token ", name(run, share.ids[0]), " goes in alone", ...told, "Its ", word("keys and values", "key and value"), " are written in ", ...slots(run, share), "; "];
  }
  const stored = ["Their ", word("keys and values"), " are written in ", ...slots(run, share), "; "];
  if (share.guesses > 0) {
    const known = rows - share.guesses;
    return [`${count(rows)} tokens go in together`, ...at, `: ${known} known, ${share.guesses} guessed. `, ...stored];
  }
  if (step > 0 && way.variant !== null) {
    const how = way.name === "concat" ? "written again, over what was there" : "computed anew";
    return [`The whole text goes in again: ${count(rows)} tokens`, ...at, `. All their keys and values are ${how}; `];
  }
  const prompt = run.prompts[share.sequence].ids.length;
  const what = start === 0 && end >= prompt ? "The prompt goes in" : "A part of the prompt goes in";
  return [`${what}: ${count(rows)} tokens`, ...at, ", all in one ", word("step"), ". ", ...stored];
}

/** Where the rows' keys and values go; in one breath where all groups have pages of the same numbers. */
function slots(run, share) {
  const places = share.slots.map((runs) => {
    const values = valuesOf(runs);
    const [from, to] = [values[0], values[values.length - 1]].map((slot) => [Math.floor(slot / run.page), slot % run.page]);
    if (from[0] === to[0]) return `${between(from[1], to[1])} of page ${from[0]}`;
    return `${from[1]} of page ${from[0]} to slot ${to[1]} of page ${to[0]}`;
  });
  const alike = places.every((place) => place === places[0]);
  const told = alike ? `${places[0]}, in every layer` : places.map((place, g) => `${place} (${kind(run.groups[g])} layers)`).join(" and ");
  return [word("slot", share.ids.length === 1 ? "slot" : "slots"), ` ${told}`];
}

function looksBack(run, way, share, step) {
  const [start, end] = own(way, share, step);
  const seen = run.groups.map((_, g) => [spanOf(share.first_key[g])[0], spanOf(share.last_key[g])[1]]);
  const firstRow = run.groups.map((_, g) => share.last_key[g][0][0]);
  if (share.ids.length > 1) {
    if (firstRow[0] > start) return ["every row sees all of them, even those after it. "];
    // How many keys the last row sees in the layers that see fewer than all.
    const widths = run.groups.map((_, g) => lastOf(share.last_key[g]) - lastOf(share.first_key[g]) + 1).filter((keys) => keys < end);
    const narrow = widths.length ? [", in sliding layers at ", word("window", `${widths[0]} positions`), " at most"] : [];
    return ["each row looks back at itself and all before it", ...narrow, ". "];
  }
  if (start > 0 && seen.every(([low]) => low === start)) return ["it looks at itself only, as if nothing were stored. "];
  const alike = seen.every(([low, high]) => low === seen[0][0] && high === seen[0][1]);
  const stale = way.name === "stale-slot" ? [`The slot of position ${run.prompts[0].ids.length - 1} holds another sequence's key and value. `] : [];
  if (alike) return [`it looks back at positions ${between(...seen[0])}. `, ...stale];
  const each = run.groups.map((group, g) => {
    const keys = seen[g][1] - seen[g][0] + 1;
    const wide = group.window !== null && keys > group.window ? ` (one more than the window of ${group.window})` : "";
    return `positions ${between(...seen[g])} in ${kind(group)} layers${wide}`;
  });
  return [`it looks back at ${each.join(" and at ")}. `, ...stale];
}

function isChosen(run, way, share, sequence) {
  if (share.choices.length === 0) return ["Nothing is chosen yet: the rest of the prompt comes first. "];
  return [...guesses(share.guesses, share.choices.length - 1), ...share.choices.flatMap((choice) => how(run, way, choice, sequence))];
}

function guesses(made, right) {
  if (made === 0) return [];
  if (made === 1) return [`The guess was ${right === 1 ? "right" : "wrong"}. `];
  return [right === made ? `All ${made} guesses were right. ` : `Of ${made} guesses ${right} ${right === 1 ? "was" : "were"} right. `];
}

function how(run, way, choice, sequence) {
  if (choice.ends === "stop") return ["Then the model ends the text. "];
  const { ids, probabilities } = choice.candidates;
  const token = name(run, choice.token);
  const instead = way.insteadOf(choice, sequence);
  const chosen =
    choice.draw === null
      ? [token, " has the largest ", word("logit"), ` and is chosen for position ${choice.position}`]
      : [`The number drawn falls on ${token} (${percent(probabilities[ids.indexOf(choice.token)])}), chosen for position ${choice.position}`];
  const other = instead === null ? "" : `, where the cached run chose ${name(run, instead)}`;
  return [...chosen, other, choice.ends === "length" ? ". It is the last one asked for. " : ". "];
}

/** The chosen token; of a variant that chose another one also what the cached run has there. */
export function chosenInWords(run, way, choice, sequence) {
  const instead = way.insteadOf(choice, sequence);
  return name(run, choice.token) + (instead === null ? "" : `, where the cached run chose ${name(run, instead)}`);
}

/** Pages that the next step finds gone. */
function isLetGo(run, way, step, sequence) {
  const track = way.tracks[sequence];
  if (step + 1 >= way.steps.length) return [];
  return run.groups.flatMap((group, g) => {
    const [before, after] = [track.heldFrom[g][step], track.heldFrom[g][step + 1]];
    return after > before ? [`Then ${kind(group)} layers let go of positions ${between(before, after - 1)}: no window reaches them any more. `] : [];
  });
}

function inCompany(way, step, share) {
  const others = way.steps[step].shares.length - 1;
  if (others === 0) return [];
  return [`${others === 1 ? "One other sequence runs" : `${others} other sequences run`} in the same step; sequence ${share.sequence} sees nothing of them.`];
}

/** Puts the sentences into their place, in the voice that was asked for. */
export function fillSentence(element, run, view, voice) {
  const share = view.way.share(view.step, view.sequence);
  const parts = sentences(run, view).map((part) => (part.entry ? term(part.entry, part.label) : part));
  const phase = share ? [h("span", { class: "phase" }, term(share.phase)), " "] : [];
  const say = h("p", { class: "plain" }, ...phase, ...parts);
  if (voice !== "exact" || share === null) {
    element.replaceChildren(say);
    return;
  }
  const lines = exact(run, view).flatMap(([what, value]) => [h("dt", {}, what), h("dd", {}, value)]);
  element.replaceChildren(say, h("dl", { class: "exact numbers" }, ...lines));
}
