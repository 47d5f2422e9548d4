// How cells are coloured: the switch between the modes, and the legend of the one that is chosen.

import {readings} from "./cells.js";
import {el, isSpecial, shift, warmth} from "./dom.js";
import {CAUSES} from "./trace.js";

const MODES = {
  cause: "Why each token was committed.",
  entropy: "How unsure the model is: of a masked position now, of a token when it was committed.",
  ripple: "What the chosen branch of a lookahead changed, against the base canvas.",
};

/** A toolbar and a legend; `onchange()` is called when the reader wants other colours. */
export class Colours {
  constructor(onchange) {
    this.mode = "cause";
    this.guesses = false;
    this.legend = el("div", {class: "legend"});
    this.buttons = Object.keys(MODES).map((mode) => el("button", {type: "button", "aria-pressed": String(mode === this.mode), onclick: () => {
      this.mode = mode;
      for (const button of this.buttons) button.setAttribute("aria-pressed", String(button.textContent === mode));
      onchange();
    }}, mode));
    const guesses = el("label", {class: "check"}, el("input", {type: "checkbox", onchange: (event) => {
      this.guesses = event.target.checked;
      onchange();
    }}), "guesses");
    this.toolbar = el("div", {class: "toolbar"}, el("div", {class: "segments", role: "group", "aria-label": "Colour by"}, this.buttons), guesses);
  }

  /** Explain the colours of what is shown: pairs of a recording and its frame. */
  explain(pairs) {
    const keys = this.mode === "cause" ? causes(pairs) : [["scale", this.mode]];
    if (this.mode !== "ripple") keys.push(...others(pairs, this.mode));
    if (this.guesses) keys.push(["guess"]);
    const state = JSON.stringify([this.mode, keys]);
    if (this.explained === state) return;
    this.explained = state;
    this.legend.replaceChildren(el("p", {class: "quiet"}, MODES[this.mode]), ...keys.map(drawn));
  }
}

/** The causes of what can be seen, how often each, and whether a commit is blamed. */
function causes(pairs) {
  const cells = pairs.flatMap(([, frame]) => frame.cells);
  const counts = Object.keys(CAUSES).map((cause) => ["cause", cause, cells.filter((cell) => cell.cause === cause).length]);
  const blamed = pairs.some(([recording]) => recording.blame) ? [["token blamed", "cost the answer"]] : [];
  return [...counts.filter(([, , n]) => n), ...blamed];
}

/** What else a cell may be: masked, not read, an end. */
function others(pairs, mode) {
  const kinds = new Set();
  for (const [recording, frame] of pairs) {
    const rows = readings(recording, frame);
    frame.cells.slice(0, recording.tail.from).forEach((cell, i) =>
      kinds.add(cell.token !== null ? isSpecial(recording.piece(cell.token)) && "end" : rows.has(i) ? "masked" : "masked far"));
  }
  const names = {"masked": "masked", "masked far": "masked, not read now", "end": "end of the text"};
  return Object.entries(names).filter(([kind]) => kinds.has(kind) && (kind !== "masked" || mode === "cause"));
}

function drawn([kind, name, n]) {
  if (kind === "scale") return scale(name);
  if (kind === "cause") {
    const looks = name === "revoked" ? "masked cause" : "token cause";
    return el("span", {class: "key", title: CAUSES[name]}, el("i", {class: `swatch ${looks}`, "data-cause": name}), `${name} ${n}`);
  }
  if (kind === "guess") return el("span", {class: "key"}, el("i", {class: "swatch masked guess"}, "a"), "what the model would say now");
  return el("span", {class: "key"}, el("i", {class: `swatch ${kind}`}, kind === "end" ? "∎" : ""), name);
}

/** The key of a colour scale, with its nats. */
function scale(mode) {
  const isHeat = mode === "entropy";
  const places = isHeat ? [0, 0.5, 1, 2, 4].map((x) => [x, warmth(x)]) : [-2, -0.5, 0, 0.5, 2].map((x) => [x, (1 + shift(x)) / 2]);
  const ticks = places.map(([x, at]) => el("b", {style: `left: ${(100 * at).toFixed(0)}%`}, String(x).replace("-", "−")));
  const [low, high] = isHeat ? ["sure", "unsure"] : ["surer", "less sure"];
  return el("span", {class: "key"}, low, el("span", {class: `ramp ${isHeat ? "heat" : "change"}`}, ticks), `${high}, nats`);
}
