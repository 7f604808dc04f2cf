/** Play, pause, step and scrub; what kind of step each is can be seen along the bar. */

import { count, go, h } from "cabochon/dom.js";

/** Milliseconds a step is shown while the run plays. */
const SPEEDS = { slow: 1200, steady: 500, fast: 120 };

/** Pixels: the slider's thumb (see the style), and the widest mark of a step. */
const THUMB = 16;
const WIDEST = 16;

export function mount(element, run) {
  let timer = null;
  let view = null;
  const play = h("button", { type: "button", id: "play", onclick: () => (timer === null ? start() : pause()) }, "Play");
  const back = h("button", { type: "button", "aria-label": "one step back", onclick: () => go(element, { step: view.step - 1 }) }, "‹");
  const on = h("button", { type: "button", "aria-label": "one step on", onclick: () => go(element, { step: view.step + 1 }) }, "›");
  const scrub = h("input", {
    type: "range",
    id: "scrub",
    min: 0,
    step: 1,
    value: 0,
    "aria-label": "step",
    oninput: (event) => go(element, { step: Number(event.target.value) }),
  });
  const speed = h("select", { "aria-label": "speed" }, ...Object.keys(SPEEDS).map((name) => h("option", { value: name }, name)));
  speed.value = "steady";
  const place = h("span", { id: "place", class: "numbers" });
  const marks = h("canvas", { class: "marks", "aria-hidden": "true" });
  const ahead = h("i", { class: "ahead" });
  element.append(
    h("div", { class: "controls" }, back, play, on, speed, place),
    h("div", { class: "bar" }, marks, ahead, scrub),
    h(
      "p",
      { class: "legend" },
      key("prefill"),
      key("decode"),
      key("guessed"),
      key("let-go", "pages let go"),
      key("broken", "first difference"),
      h("span", { class: "hint", "aria-hidden": "true" }, h("kbd", {}, "←"), h("kbd", {}, "→"), " step ", h("kbd", {}, "space"), " play"),
    ),
  );
  new ResizeObserver(() => view && draw()).observe(element);

  function key(kind, word = kind) {
    return h("span", { class: "key" }, h("i", { "data-mark": kind }), word);
  }

  function start() {
    if (view.step === view.way.steps.length - 1) go(element, { step: 0 });
    play.textContent = "Pause";
    document.documentElement.dataset.playing = "";
    timer = setInterval(() => {
      if (!element.isConnected || view.step === view.way.steps.length - 1) pause();
      else go(element, { step: view.step + 1 });
    }, SPEEDS[speed.value]);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
    delete document.documentElement.dataset.playing;
  }

  /** What is read out waits for the end of playing. */
  function pause() {
    stop();
    go(element, {});
  }

  speed.addEventListener("change", () => {
    if (timer === null) return;
    stop();
    start();
  });

  /** One stroke for each step, or one for several where there are more steps than pixels. */
  function draw() {
    const { way } = view;
    const scale = devicePixelRatio;
    const [width, height] = [marks.clientWidth, marks.clientHeight];
    marks.width = Math.round(width * scale);
    marks.height = Math.round(height * scale);
    const style = getComputedStyle(element);
    const ink = Object.fromEntries(
      ["prefill", "decode", "guessed", "let-go", "broken"].map((kind) => [kind, style.getPropertyValue(`--mark-${kind}`).trim()]),
    );
    const pen = marks.getContext("2d");
    pen.scale(scale, scale);
    const each = (width - THUMB) / Math.max(way.steps.length - 1, 1);
    const wide = Math.min(Math.max(each - (each > 3 ? 1 : 0), 0.5), WIDEST);
    way.steps.forEach((step, t) => {
      // Centred where the slider's thumb stands at this step.
      const x = THUMB / 2 + t * each - wide / 2;
      const prefill = step.shares.some((share) => share.phase === "prefill");
      const guessed = step.shares.some((share) => share.guesses > 0);
      pen.fillStyle = ink[prefill ? "prefill" : guessed ? "guessed" : "decode"];
      pen.fillRect(x, prefill ? 4 : 8, wide, prefill ? height - 8 : height - 16);
      const note = t === way.variant?.first_step ? "broken" : letsGo(way, t) ? "let-go" : null;
      if (note === null) return;
      pen.fillStyle = ink[note];
      pen.fillRect(x, 0, Math.max(wide, 2), 3);
    });
  }

  function show(next) {
    const other = view === null || view.way !== next.way;
    view = next;
    if (other) scrub.max = view.way.steps.length - 1;
    scrub.value = view.step;
    scrub.setAttribute("aria-valuetext", `step ${view.step} of ${view.way.steps.length - 1}`);
    ahead.style.setProperty("--at", `${view.step / Math.max(view.way.steps.length - 1, 1)}`);
    place.textContent = `step ${count(view.step)} of ${count(view.way.steps.length - 1)}`;
    if (other) {
      if (timer !== null) stop();
      draw();
    }
    // The theme may have turned.
    else if (marks.dataset.theme !== document.documentElement.dataset.theme) draw();
    marks.dataset.theme = document.documentElement.dataset.theme ?? "";
  }

  return { show };
}

/** Whether a step finds pages gone that the one before it held. */
function letsGo(way, t) {
  return t > 0 && way.tracks.some((track) => track.heldFrom.some((held) => held[t] > held[t - 1]));
}
