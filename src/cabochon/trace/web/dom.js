/** Making elements. Texts of a trace are never trusted: they become text nodes and nothing else. */

/** An element with attributes (functions are listeners, booleans are present or absent) and children. */
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Asks whoever holds the view for another one: {step?, sequence?, way?}. */
export function go(element, detail) {
  element.dispatchEvent(new CustomEvent("go", { bubbles: true, detail }));
}

/** A whole number with separators. */
export const count = (n) => n.toLocaleString("en-US");

/** "4" or "4 to 9". */
export const interval = (first, last, word = "–") => (first === last ? `${first}` : `${first}${word}${last}`);

/** A piece of text in quotes, with what could not be seen spelled out. */
export function quoted(text) {
  const spelled = JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"');
  return `“${spelled}”`;
}

/** A number of bytes for people. */
export function bytes(n) {
  if (n < 1024) return `${n} B`;
  if (n < 1024 ** 2) return `${(n / 1024).toFixed(1)} KiB`;
  return n < 1024 ** 3 ? `${(n / 1024 ** 2).toFixed(1)} MiB` : `${(n / 1024 ** 3).toFixed(2)} GiB`;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const palettes = new Map();

/** The colours of the page as they are now, by the names of their CSS variables. Each theme is looked up once. */
export function colours(...names) {
  const theme = [document.documentElement.dataset.theme ?? dark.matches, ...names].join(" ");
  if (!palettes.has(theme)) {
    const style = getComputedStyle(document.documentElement);
    palettes.set(theme, Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()])));
  }
  return palettes.get(theme);
}
