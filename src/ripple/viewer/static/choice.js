// What a lookahead compared: its candidates, their scores, and the ripple each would have sent through the rest.

import {chance, counted, el, fixed, isSpecial, quoted, scored, shift, unique, visible, warmth} from "./dom.js";

const COLUMNS = {
  p: "how probable the token was when the pivot was chosen",
  plausible: "how probable it is in the lookahead's base canvas",
  rest: "mean entropy of what else is masked, in nats",
  score: "what the decoder compares: the highest wins",
};

/** The panel of one choice; `onpreview(branch or null)` is called as somebody looks at a candidate. */
export class ChoicePanel {
  constructor({onpreview, onnext}) {
    this.onpreview = onpreview;
    this.onnext = onnext;
    this.node = el("section", {class: "panel choice", "aria-label": "Lookahead", tabindex: -1});
    this.id = unique("column");
    this.words = el("details", {class: "words"}, el("summary", {}, "What the columns say"), el("dl", {},
      Object.entries(COLUMNS).map(([name, meaning]) => el("div", {}, el("dt", {}, name), el("dd", {id: `${this.id}-${name}`}, meaning)))));
  }

  /** Show the choice of a frame, or say that it has none. */
  show(recording, frame) {
    this.node.hidden = !recording.frames.some((one) => one.choice); // a run without any needs no panel
    if (this.frame === frame && this.choice === frame.choice) return;
    const hadFocus = this.node.contains(document.activeElement);
    Object.assign(this, {recording, frame, choice: frame.choice});
    if (this.choice) this.#fill();
    else this.#empty();
    if (hadFocus) this.node.focus({preventScroll: true}); // what had it is gone
  }

  #empty() {
    const next = el("button", {type: "button", class: "link", onclick: () => this.onnext()}, "Go to the next one");
    this.node.replaceChildren(el("h2", {}, "Lookahead"), el("p", {class: "quiet"}, "None at this forward. ", next));
  }

  #fill() {
    const {candidates} = this.choice;
    this.detail = el("div", {class: "detail"});
    this.node.replaceChildren(this.#title(), this.#table(), this.words, this.detail);
    this.#look(candidates.find((one) => one.isChosen) ?? candidates[0]);
  }

  #title() {
    const {choice} = this;
    if (choice.kind === "branches") return el("h2", {}, "Branches ", el("small", {}, `forward ${choice.nfe}`));
    const where = choice.pivots.map((pos) => `position ${pos}`).join(" and ");
    return el("h2", {}, `Pivot at ${where} `, el("small", {}, `forward ${choice.nfe} · ${fixed(choice.before)} nats`));
  }

  #table() {
    const isSearch = this.choice.kind === "search", isScored = this.choice.candidates.some((one) => one.score !== undefined);
    const columns = [...(isSearch ? ["p", "plausible"] : []), "rest", ...(isScored ? ["score"] : [])];
    const rows = this.choice.candidates.map((one) => this.#row(one, isSearch, isScored));
    return el("table", {class: "candidates"},
      el("thead", {}, el("tr", {}, el("th", {scope: "col"}, "candidate"),
        columns.map((name) => el("th", {scope: "col", "aria-describedby": `${this.id}-${name}`}, name)))),
      el("tbody", {}, rows));
  }

  #row(one, isSearch, isScored) {
    const button = el("button", {type: "button", class: "candidate"}, nameOf(one),
      one.isChosen ? el("span", {class: "chosen"}, "chosen") : null);
    const row = el("tr", {class: one.isChosen ? "is-chosen" : null}, el("th", {scope: "row"}, button),
      isSearch ? [el("td", {}, chance(one.p)), el("td", {}, chance(one.plausibility))] : [],
      el("td", {class: "rest", style: `--heat: ${warmth(one.entropy ?? 0).toFixed(2)}`}, fixed(one.entropy)),
      isScored ? el("td", {}, scored(one.score)) : null);
    const look = () => this.#look(one, true), leave = () => this.#leave();
    row.addEventListener("pointerenter", look);
    row.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && leave()); // a finger always leaves
    row.addEventListener("click", () => button.focus());
    button.addEventListener("focus", look);
    button.addEventListener("blur", leave);
    return row;
  }

  #look(one, isPreview = false) {
    this.detail.setAttribute("aria-live", isPreview ? "polite" : "off"); // told where somebody asks, not while forwards pass
    this.detail.replaceChildren(...this.#ripple(one), ...this.#text(one));
    if (isPreview) this.onpreview(one.isStay ? {edits: [], look: this.frame.look, changed: new Map()} : one.branch);
  }

  #leave() {
    this.#look(this.choice.candidates.find((one) => one.isChosen) ?? this.choice.candidates[0]);
    this.onpreview(null);
  }

  /** Two strips of cells: how unsure each masked position is before the edit, and after it. */
  #ripple(one) {
    const {look} = this.frame;
    if (!one.branch) return [];
    const edited = new Set(one.branch.edits.map((edit) => edit.pos));
    const strip = (label, rows) => el("div", {class: "strip"}, el("span", {class: "strip-name"}, label), el("span", {class: "strip-cells"},
      [...look.keys()].map((pos) => rows(pos))));
    const cell = (pos, text, style, change) => el("i", {class: "strip-cell", title: `position ${pos}: ${text}`, style,
      "data-change": change});
    const heat = (row) => `--heat: ${warmth(row.entropy).toFixed(2)}`;
    const before = strip("before", (pos) => cell(pos, `${fixed(look.get(pos).entropy)} nats`, heat(look.get(pos))));
    const after = strip("after", (pos) => edited.has(pos) ? el("i", {class: "strip-cell edit", title: `position ${pos}: the edit`})
      : cell(pos, `${fixed(one.branch.look.get(pos).entropy)} nats`, heat(one.branch.look.get(pos))));
    const change = strip("change", (pos) => {
      if (edited.has(pos)) return el("i", {class: "strip-cell edit", title: `position ${pos}: the edit`});
      const nats = one.branch.look.get(pos).entropy - look.get(pos).entropy;
      return cell(pos, `${fixed(nats)} nats`, `--heat: ${Math.abs(shift(nats)).toFixed(2)}`, nats < 0 ? "surer" : "less-sure");
    });
    const rest = [...one.branch.look].map(([pos, row]) => row.entropy - look.get(pos).entropy);
    const sum = rest.reduce((a, b) => a + b, 0);
    return [el("h3", {}, "Ripple of ", el("q", {}, nameOf(one))), before, after, change,
      el("p", {class: "quiet"}, rest.length ? `${fixed(sum)} nats over ${counted(rest.length, "masked position")}` : "nothing else is masked")];
  }

  /** What the branch would have made of the rest, as text. */
  #text(one) {
    const {recording, frame} = this;
    if (!one.branch && !one.isStay) return [el("p", {class: "quiet"}, "What it would make of the rest is not in this trace.")];
    if (!one.branch && !frame.look.size) return [];
    const before = recording.frames[frame.nfe - 1].cells;
    const edits = new Map((one.branch?.edits ?? []).map((edit) => [edit.pos, edit.token]));
    const look = one.branch?.look ?? frame.look;
    const parts = [];
    for (const [i, cell] of before.entries()) {
      const token = edits.get(i) ?? cell.token ?? look.get(i)?.token;
      if (token === undefined) break;
      const piece = recording.piece(token);
      if (isSpecial(piece)) break;
      const kind = edits.has(i) ? "mark" : cell.token === null ? "em" : "span";
      const isOther = one.branch?.changed?.has(i);
      parts.push(el(kind, isOther ? {class: "other", title: "not what the base would say"} : {}, visible(piece).replace(/⏎\n/g, "\n")));
    }
    const whose = one.branch ? "What it would make of the rest" : "What the model would say without it";
    return [el("h3", {}, whose), el("p", {class: "branch-text"}, parts.length ? parts : "nothing but the end")];
  }
}

const nameOf = (one) => (typeof one.label === "function" ? one.label() : one.label);
