/** The page: which run, which way, which step; it tells every band when that changes. */

import * as choice from "cabochon/choice.js";
import * as cost from "cabochon/cost.js";
import { count, h } from "cabochon/dom.js";
import * as lanes from "cabochon/lanes.js";
import * as memory from "cabochon/memory.js";
import { Run } from "cabochon/run.js";
import { fillSentence, plain } from "cabochon/sentence.js";
import * as text from "cabochon/text.js";
import * as timeline from "cabochon/timeline.js";
import { wordList } from "cabochon/words.js";

const BANDS = { text, lanes, memory, choice, cost, timeline };

const at = (id) => document.getElementById(id);

/** The runs that the page holds. */
async function runsOfPage() {
  const packed = Uint8Array.from(atob(at("runs").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text()).runs.map((data) => new Run(data));
}

class Page {
  constructor(runs) {
    this.runs = runs;
    this.voice = "plain";
    document.addEventListener("go", (event) => this.go(event.detail));
    document.addEventListener("keydown", (event) => this.key(event));
    at("voice").addEventListener("change", (event) => {
      this.voice = event.target.value;
      this.show();
    });
    at("theme").addEventListener("click", () => this.turnTheme());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show());
    at("words").querySelector(".body").replaceChildren(wordList());
    const picker = at("run");
    at("runs-label").hidden = runs.length < 2;
    picker.replaceChildren(...runs.map((run, n) => h("option", { value: n }, run.title)));
    picker.addEventListener("change", () => this.open(runs[picker.value]));
    this.open(runs[0]);
  }

  /** Shows another run, from its first step. */
  open(run) {
    this.run = run;
    this.view = { way: run.ways[0], step: 0, sequence: 0 };
    at("facts").textContent = facts(run);
    this.bands = Object.entries(BANDS).map(([id, band]) => {
      const body = at(id).querySelector(".body");
      body.replaceChildren();
      return band.mount(body, run);
    });
    this.tabs = run.ways.map((way) => this.tab(way));
    at("ways").replaceChildren(...lawsOf(run, this.tabs));
    at("ways").hidden = run.ways.length < 2;
    this.show();
  }

  tab(way) {
    const broken = way.variant !== null && way.variant.verdict === "broken";
    const wrong = way.variant !== null && !way.variant.as_expected;
    const open = way.variant !== null && way.variant.verdict === "not reached";
    const kind = way.variant === null ? "run" : wrong ? "wrong" : broken ? "broken" : open ? "open" : "equal";
    return h(
      "button",
      { type: "button", role: "tab", "data-way": way.name, "data-kind": kind, onclick: () => this.go({ way }) },
      h("span", { class: "name" }, way.name.replaceAll("-", " ")),
      h("span", { class: "stamp" }, way.verdict),
    );
  }

  /** Another view: what is not given stays. The step stays within the way's, the sequence within its sequences. */
  go({ way = this.view.way, step = this.view.step, sequence = this.view.sequence }) {
    this.view = {
      way,
      step: Math.min(Math.max(step, 0), way.steps.length - 1),
      sequence: Math.min(sequence, way.sequences - 1),
    };
    this.show();
  }

  show() {
    const { way, step, sequence } = this.view;
    this.run.ways.forEach((each, n) => {
      this.tabs[n].setAttribute("aria-selected", String(each === way));
      this.tabs[n].tabIndex = each === way ? 0 : -1;
    });
    const focused = document.activeElement;
    const section = focused.closest("section");
    const place = section ? stops(section).indexOf(focused) : -1;
    at("about").textContent = aboutOf(way);
    at("about").dataset.kind = this.tabs[this.run.ways.indexOf(way)].dataset.kind;
    for (const band of this.bands) band.show(this.view);
    fillSentence(at("sentence"), this.run, this.view, this.voice);
    // Not while it plays: nobody could listen to that.
    if (!("playing" in document.documentElement.dataset)) at("live").textContent = plain(this.run, this.view);
    // What had the keyboard may have been made anew: whoever moves through the steps stays where they are.
    if (section && document.activeElement !== focused) stops(section)[place]?.focus({ preventScroll: true });
    document.documentElement.dataset.step = `${step}`;
    window.cabochon = { run: this.run, view: this.view, state: (l, p) => way.state(l, p, step, sequence) };
  }

  key(event) {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const tab = event.target.closest("[role=tab]");
    const { way, step } = this.view;
    const moves = { ArrowRight: 1, ArrowLeft: -1, PageDown: 10, PageUp: -10 };
    if (event.key in moves && tab) {
      const ways = this.run.ways;
      const next = ways[(ways.indexOf(way) + Math.sign(moves[event.key]) + ways.length) % ways.length];
      this.go({ way: next });
      this.tabs[ways.indexOf(next)].focus();
    } else if (event.key in moves) this.go({ step: step + moves[event.key] });
    else if (event.key === "Home") this.go({ step: 0 });
    else if (event.key === "End") this.go({ step: way.steps.length - 1 });
    else if (event.key === " " && !/^(BUTTON|SUMMARY|INPUT)$/.test(event.target.tagName)) {
      at("timeline").querySelector("#play").click();
    } else return;
    event.preventDefault();
  }

  turnTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    this.show();
  }
}

/** The tabs by what is asked of them: the run itself, what must be equal to it, what must not. */
function lawsOf(run, tabs) {
  const laws = { recorded: [], "must be the same": [], "must break": [] };
  run.ways.forEach(({ variant }, n) => {
    laws[variant === null ? "recorded" : variant.equal ? "must be the same" : "must break"].push(tabs[n]);
  });
  return Object.entries(laws)
    .filter(([, members]) => members.length > 0)
    .map(([law, members]) =>
      h(
        "div",
        { class: "law", role: "presentation", style: `flex-grow:${members.length}` },
        h("span", { class: "quiet", "aria-hidden": "true" }, law),
        h("div", { class: "plates", role: "presentation" }, ...members),
      ),
    );
}

/** Where the keyboard can come to in a section. */
function stops(section) {
  return [...section.querySelectorAll("button, select, input, [tabindex]")];
}

/** One line about the model. */
function facts(run) {
  const { model } = run;
  const kinds = run.groups.map((group, g) => `${group.layers.length} ${run.kind(g)}`).join("; ");
  return `${model.name || model.architecture} · ${run.layers} layers (${kinds}) · keys and values in ${model.kv_type} · ${model.backend}`;
}

function aboutOf(way) {
  const variant = way.variant;
  if (variant === null) return `Cached: ${way.about}.`;
  const off = variant.max_abs_difference;
  const logits =
    variant.verdict === "identical bits"
      ? "Every logit of every step has the same bits as in the cached run."
      : variant.verdict === "not reached"
        ? "This run is too short to come to where it would differ."
        : `Logits differ by up to ${off === null ? "more than can be told" : off.toPrecision(3)}` +
          (variant.margin === null ? "." : `; at the first such step the best led by ${variant.margin.toPrecision(3)}.`);
  const where = variant.difference;
  const first = where ? ` First the ${where.what} of position ${where.position} in layer ${where.layer}.` : "";
  const cost = ` ${count(variant.cost.tokens)} tokens were run instead of ${count(way.run.ways[0].steps.reduce((n, s) => n + s.cost.tokens, 0))}.`;
  return `${way.about[0].toUpperCase()}${way.about.slice(1)}. ${logits}${first}${way.variant.equal ? cost : ""}`;
}

runsOfPage().then(
  (runs) => new Page(runs),
  (error) => {
    at("facts").textContent = `This page cannot be shown: ${error.message}`;
    throw error;
  },
);
