// Small helpers: elements, numbers and text as people read them.

/** Make an element: `el("p", {class: "note"}, "text", child)`; `on...` properties are listeners. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Make an element of an SVG drawing. */
export function svg(tag, props = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  node.append(...children.flat());
  return node;
}

const ICONS = {
  first: "M3 2h2v12H3zM14 2v12L6 8z", back: "M12 2v12L4 8z", play: "M4 2v12l10-6z", pause: "M4 2h3v12H4zM9 2h3v12H9z",
  forward: "M4 2v12l8-6z", last: "M11 2h2v12h-2zM2 2v12l8-6z", pivot: "M8 1l6 7-6 7-6-7z",
};

/** Make a drawing for a button; its name is the button's label. */
export function icon(name) {
  return svg("svg", {viewBox: "0 0 16 16", "aria-hidden": "true"}, svg("path", {d: ICONS[name]}));
}

/** Make a button show that it plays or pauses. */
export function setPlaying(button, isPlaying) {
  button.replaceChildren(icon(isPlaying ? "pause" : "play"));
  button.title = isPlaying ? "Pause (space)" : "Play (space)";
  button.setAttribute("aria-label", button.title);
}

let made = 0;

/** Return an id that no other element has. */
export const unique = (what) => `${what}-${(made += 1)}`;

/** Whether a key that was pressed anywhere is for the view, and not for what has the focus. */
export function isForView({key, target, ctrlKey, metaKey, altKey}) {
  const isIn = (selector) => Boolean(target.closest?.(selector));
  if (ctrlKey || metaKey || altKey || isIn("select, input:not([type=checkbox], [type=range])")) return false;
  if (isIn("textarea")) return target.value === "" && key.startsWith("Arrow"); // an empty box has no use for arrows
  if (key === " ") return !isIn("button, [type=checkbox], summary, [role=button], a");
  return !(key.startsWith("Arrow") && isIn("[role=tab]"));
}

/** Write text into an element if it has another one, so that screen readers hear changes alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

const SPECIAL = /^<\|\w+\|>$|^<\/?s>$|^<\w+_of_text>$/;
const SIGNS = {"\n": "⏎\n", "\r": "␍", "\t": "⇥", "\x1b": "␛"};

/** Whether a piece stands for an end token or the like. */
export const isSpecial = (piece) => SPECIAL.test(piece);

/** Return a piece of text with its control characters as signs. */
export function visible(piece) {
  return piece.replace(/[\p{Cc}\p{Cf}]/gu, (sign) => SIGNS[sign] ?? "·");
}

/** Return a piece on one line, as it is named in a sentence. */
export const quoted = (piece) => visible(piece).replace(/\n/g, "").replace(/^ | $/g, "␣");

/** Return a number with so many decimals; nothing where there is none. */
export const fixed = (x, digits = 2) => (x === null || x === undefined ? "" : x.toFixed(digits).replace("-", "−"));

/** Return a score; minus infinity comes as null. */
export const scored = (x) => (x === null ? "−∞" : fixed(x, 3));

/** Return a probability. */
export const chance = (x) => (x === null || x === undefined ? "" : x > 0 && x < 0.0005 ? "<0.001" : x.toFixed(3));

/** Return seconds as milliseconds or seconds, whichever reads better. */
export const clock = (s) => (s < 1 ? `${Math.round(1000 * s)} ms` : s < 100 ? `${s.toFixed(2)} s` : `${Math.round(s)} s`);

/** Return "1 token", "2 tokens". */
export const counted = (n, what) => `${n} ${what}${n === 1 ? "" : what.endsWith("s") ? "es" : "s"}`;

/** How much of the scale from sure to unsure an entropy takes, 0 to 1. */
export const warmth = (nats) => 1 - Math.exp(-nats / 1.2);

/** How much of the scale of changes a difference of entropies takes, -1 to 1. */
export const shift = (nats) => Math.sign(nats) * (1 - Math.exp(-Math.abs(nats) / 0.5));

/** Whether there is room for more than one column. */
export const isWide = () => matchMedia("(min-width: 60rem)").matches;

/** Whether the reader points with a finger. */
export const isTouched = () => matchMedia("(pointer: coarse)").matches;

/** Whether the reader asked for less motion. */
export const isCalm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
