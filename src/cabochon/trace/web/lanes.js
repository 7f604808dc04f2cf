/**
 * Three lanes that are never merged: where the step's rows stand in the text (position), where their keys and values are
 * stored (slot), and which keys they may see (mask row). In other programs one number often stands for all three.
 */

import { count, h, interval } from "cabochon/dom.js";
import { lastOf, spanOf, valuesOf } from "cabochon/run.js";
import { term } from "cabochon/words.js";

const SVG = "http://www.w3.org/2000/svg";

export function mount(element, run) {
  /** One for each sequence and lane, made anew at each step: there are few. */
  function show({ way, step, sequence }) {
    const length = Math.max(...way.tracks.map((_, s) => way.length(s)));
    const shares = way.steps[step].shares;
    const own = way.share(step, sequence);
    const many = shares.length > 1;
    const ofGroups = (rows) => run.groups.flatMap((_, g) => rows(g));
    element.replaceChildren(
      lane("position", "where in the text; sets the rotary angle", shares.map((share) => positions(share, length, many))),
      lane("slot", "where its key and value are stored", own ? ofGroups((g) => slots(own, g)) : []),
      lane("mask row", "which keys it may see", ofGroups((g) => shares.map((share) => mask(share, g, length, many)))),
    );
  }

  /** What a row of a lane is about: the kind of layers, and in a batch the sequence. */
  function who(share, g, many) {
    const group = g === null ? "" : run.groups[g].window === null ? "global" : `sliding ${count(run.groups[g].window)}`;
    return many ? [h("b", { class: "sequence-mark" }, `${share.sequence}`), ` ${group}`] : [group];
  }

  function positions(share, length, many) {
    const [first, last] = spanOf(share.positions);
    return row(share, who(share, null, many), interval(first, last), ruler(bar(first, last + 1, length, "now")));
  }

  function mask(share, g, length, many) {
    const firsts = valuesOf(share.first_key[g]);
    const lasts = valuesOf(share.last_key[g]);
    const low = Math.min(...[firsts[0], firsts[firsts.length - 1]]);
    const high = lastOf(share.last_key[g]);
    const told =
      firsts.length === 1
        ? `${interval(firsts[0], lasts[0])} (${count(lasts[0] - firsts[0] + 1)} keys)`
        : `the last: ${interval(firsts[firsts.length - 1], high)}`;
    const picture = firsts.length === 1 ? ruler(bar(low, high + 1, length, "seen")) : staircase(firsts, lasts, length);
    return row(share, who(share, g, many), told, picture);
  }

  /** The page that the last row is stored in, as its places. */
  function slots(share, g) {
    const values = valuesOf(share.slots[g]);
    const [first, last] = [values[0], values[values.length - 1]];
    const page = Math.floor(last / run.page);
    const places = Array.from({ length: run.page }, (_, place) =>
      h("i", { class: values.includes(page * run.page + place) ? "place now" : place < last % run.page ? "place before" : "place" }),
    );
    const name = (slot) => `${Math.floor(slot / run.page)}:${slot % run.page}`;
    const told =
      page * run.page <= first ? `page ${page}, slot ${interval(first % run.page, last % run.page)}` : `${name(first)} to ${name(last)}`;
    return row(share, who(share, g, false), told, h("div", { class: "places", "aria-hidden": "true" }, ...places));
  }

  return { show };
}

function lane(word, about, rows) {
  return h("div", { class: "lane" }, h("h3", {}, term(word), h("span", { class: "quiet" }, ` ${about}`)), ...rows);
}

function row(share, who, told, picture) {
  const name = h("span", { class: "who" }, ...who);
  return h("div", { class: "lane-row", "data-sequence": share.sequence }, name, picture, h("span", { class: "numbers" }, told));
}

function ruler(child) {
  return h("div", { class: "ruler", "aria-hidden": "true" }, child);
}

function bar(first, end, length, kind) {
  const left = (100 * first) / length;
  const width = (100 * (end - first)) / length;
  return h("i", { class: `bar-part ${kind}`, style: `left:${left}%;width:max(${width}%,3px)` });
}

/** Rows downwards, keys across: what each row of a prompt may see. */
function staircase(firsts, lasts, length) {
  const n = firsts.length;
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${length} ${n}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "stairs");
  svg.setAttribute("aria-hidden", "true");
  const right = lasts.map((last, i) => `${last + 1},${i} ${last + 1},${i + 1}`);
  const left = firsts.map((first, i) => `${first},${i + 1} ${first},${i}`).reverse();
  const shape = document.createElementNS(SVG, "polygon");
  // Going down on the right side and up on the left; each row is a step of the stairs.
  shape.setAttribute("points", [...right, ...left].join(" "));
  svg.append(shape);
  return svg;
}
