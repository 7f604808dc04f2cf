/** The words of the page. A term anywhere on it opens its meaning, by mouse or keyboard. */

import { h } from "cabochon/dom.js";

export const WORDS = {
  token: "A piece of text that the model knows by a number, its id.",
  vocabulary: "All ids that the model knows. It gives a logit to each of them at every step.",
  position: "Where in the text a token stands, counted from 0. It sets the angle by which query and key are turned, and nothing else.",
  slot: "Where a row's key and value are stored: a place in a page, 0 to 31. It follows the text within the page; which page it is has nothing to do with the position.",
  "mask row": "Which keys one row may see: from the first to the last. Later positions are never among them, and in sliding layers old ones are not either.",
  row: "One token in one step of the model. The row at position i predicts the token of position i + 1.",
  step: "One run of the model, over the rows of one or more sequences.",
  sequence: "One text: the ids of a prompt and its reply.",
  page: "Memory for the keys and values of 32 neighbouring positions in every layer of a group.",
  "page table": "Which page holds each run of 32 positions of a sequence, for one group of layers.",
  group: "The layers that share pages: they have one window, and keys and values of one shape.",
  window: "How many positions a sliding layer sees, its own included. Global layers have none and see everything.",
  prefill: "Steps that run the prompt, many rows at once. Only the last row's logits are needed.",
  chunk: "The rows of a prompt that one step takes, where the prompt is too long for a single one.",
  decode: "Steps of one row: the token that was chosen last goes in, and the next one is chosen.",
  "KV cache": "The stored keys and values of earlier positions. They never change again, so nobody needs to compute them twice.",
  "keys and values": "What a row leaves for later rows: its key says how well it fits a query, its value is what it has to tell. A query is used once, in its own step, and not stored.",
  "prefix cache": "Pages that are kept for other texts that begin alike. That is across requests; the KV cache is inside one.",
  logit: "The model's score of an id as the next token. The larger, the more probable.",
  "log-probability": "The logarithm of an id's share of all probability, as the model sees it, before temperature and filters.",
  probability: "How likely the candidate is to be drawn from those that are left; they sum to 1.",
  "soft cap": "Some models bend large logits with cap * tanh(logit / cap), so that none exceeds the cap.",
  "raw logit": "The logit before the soft cap.",
  adjusted: "The logit after bias and penalties.",
  temperature: "Logits, less the largest, are divided by it. Below 1 the best become more probable, above 1 the others do.",
  top_k: "Keeps the k candidates with the largest logits.",
  top_p: "Keeps the fewest best candidates that together hold the share p of the probability.",
  min_p: "Keeps candidates at least p times as probable as the best one.",
  typical: "Keeps the candidates whose surprise is nearest to what is to be expected.",
  xtc: "Now and then removes the most probable candidates, all but one.",
  greedy: "No chance: the candidate with the largest logit is chosen.",
  "not allowed": "A constraint, a rule on the text's length or the tokenizer forbids this id here.",
  "query-key pair": "One head's query in one row meets one key that it may see. Their number is what attention costs.",
};

let note = null;

/** A button that opens the meaning of a word of the list. */
export function term(word, label = word) {
  if (!Object.hasOwn(WORDS, word)) return h("span", {}, label);
  return h("button", { type: "button", class: "term", onclick: (event) => explain(event.currentTarget, word) }, label);
}

/** Beside the button; read out, and gone with the next click, the escape key, or when the page is scrolled. */
function explain(button, word) {
  if (note === null) {
    note = h("div", { id: "note", popover: "auto", role: "note", "aria-live": "polite" });
    document.body.append(note);
    addEventListener("scroll", () => note.matches(":popover-open") && note.hidePopover(), { passive: true });
  }
  note.showPopover();
  note.replaceChildren(h("b", {}, word), ` ${WORDS[word]}`);
  const place = button.getBoundingClientRect();
  const left = Math.min(place.left, document.documentElement.clientWidth - note.offsetWidth - 8);
  const below = place.bottom + 6;
  note.style.left = `${Math.max(left, 8)}px`;
  note.style.top = `${below + note.offsetHeight > innerHeight ? place.top - note.offsetHeight - 6 : below}px`;
}

/** The whole list, folded. */
export function wordList() {
  const entries = Object.entries(WORDS).flatMap(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)]);
  return h("details", {}, h("summary", {}, "All words of this page"), h("dl", {}, ...entries));
}
