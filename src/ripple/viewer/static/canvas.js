// The response as a canvas of cells, one per position: drawn, pointed at, picked, and walked through by keyboard.

import {described, named, states} from "./cells.js";
import {counted, el, setText} from "./dom.js";

/** What stands where a story would. */
export const HINT = "Pick a position for its story; a pivot leads to what it was compared with.";

const FOLDED = 8; // positions at least that a fold hides
const SAME_LINE = 12; // px between the middles of two cells on one line, at most

/** Draws one frame of a recording. `story` is the id of the element that tells of one position. */
export class CanvasView {
  /** Calls `onpick(nfe, isPointer)` for a pivot, `ontell()` when the story changes, `onpin()` when a position is to be kept in view. */
  constructor({story, onpick = () => {}, ontell = () => {}, onpin = () => {}, onleave = () => {}}) {
    Object.assign(this, {storyId: story, onpick, ontell, onpin, onleave});
    this.cells = [];
    this.at = 0; // the cell that the keyboard reaches
    this.over = null; // the one under the mouse
    this.isPinned = false; // whether somebody picked the one at `at`
    this.fold = el("button", {type: "button", class: "fold", onclick: () => this.#unfold()});
    this.node = el("div", {class: "canvas", role: "group"}, this.fold);
    this.node.addEventListener("pointerover", (event) => event.pointerType !== "touch" && this.#hover(indexOf(event.target)));
    this.node.addEventListener("pointerleave", () => this.#hover(null));
    this.node.addEventListener("focusin", (event) => this.#pin(indexOf(event.target)));
    this.node.addEventListener("click", (event) => this.#pick(event.target, event.detail > 0));
    this.node.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Show a frame; `how` is what cells.js makes states of. */
  show(recording, frame, how = {}) {
    this.shown = {recording, frame};
    while (this.cells.length < frame.cells.length) {
      const cell = el("span", {class: "cell"});
      cell.dataset.at = this.cells.length;
      this.cells.push(cell);
      this.fold.before(cell);
    }
    while (this.cells.length > frame.cells.length) this.cells.pop().remove();
    states(recording, frame, how).forEach((state, i) => draw(this.cells[i], state));
    this.node.setAttribute("aria-label", `Response after forward ${frame.nfe}, ${recording.masked(frame)} masked; arrows go from position to position`);
    this.node.classList.toggle("is-preview", Boolean(how.preview));
    this.#hideTail(recording.tail);
    this.#reach(Math.min(this.at, this.limit - 1));
  }

  /** What is to be told of one position, null where none was chosen. */
  get story() {
    const i = this.over ?? (this.isPinned ? this.at : null);
    return i === null || !this.shown ? null : described(this.shown.recording, this.shown.frame, i);
  }

  unpin() {
    this.isPinned = false;
    this.cells[this.at]?.classList.remove("pinned");
  }

  /** Hide the positions that the answer did without. */
  #hideTail({from, why}) {
    const n = this.cells.length - from;
    const isFolded = n >= FOLDED && !this.isOpen;
    this.limit = isFolded ? Math.max(1, from) : this.cells.length;
    this.cells.forEach((cell, i) => (cell.hidden = i >= this.limit));
    this.fold.hidden = n < FOLDED;
    this.fold.setAttribute("aria-expanded", String(!isFolded));
    const filled = this.shown.frame.cells.slice(from).filter((cell) => cell.token !== null).length;
    setText(this.fold, isFolded ? `… ${counted(n, "position")} ${why}${filled ? `, ${filled < n ? `${filled} ` : ""}filled` : ""}` : `hide the ${counted(n, "position")} ${why}`);
  }

  #unfold() {
    this.isOpen = !this.isOpen;
    this.#hideTail(this.shown.recording.tail);
    this.#reach(Math.min(this.at, this.limit - 1));
  }

  /** Make one cell the one that Tab leads to. */
  #reach(i) {
    const old = this.cells[this.at], cell = this.cells[i];
    if (old && old !== cell) {
      for (const name of ["role", "tabindex", "aria-label", "aria-describedby"]) old.removeAttribute(name);
      old.classList.remove("pinned");
      if (old.isHidden) old.setAttribute("aria-hidden", "true");
    }
    this.at = i;
    const {recording, frame} = this.shown;
    for (const [name, value] of [["role", "button"], ["tabindex", "0"], ["aria-label", named(recording, frame, i)], ["aria-describedby", this.storyId]]) {
      cell.setAttribute(name, value);
    }
    cell.removeAttribute("aria-hidden");
    cell.classList.toggle("pinned", this.isPinned);
  }

  #hover(i) {
    this.over = i;
    this.ontell();
  }

  /** Keep a position in view. */
  #pin(i) {
    if (i === null) return;
    this.isPinned = true;
    this.#reach(i);
    this.onpin();
    this.ontell();
  }

  #pick(target, isPointer) {
    const i = indexOf(target);
    this.#pin(i);
    if (i !== null && this.cells[i].dataset.pick) this.onpick(Number(this.cells[i].dataset.pick), isPointer);
  }

  #key(event) {
    const {key, target} = event;
    if (indexOf(target) === null || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    const to = this.#next(key);
    if (key === "Enter" || key === " ") this.#pick(target, false);
    else if (key === "Escape") this.unpin(), this.onleave();
    else if (to === null) return;
    else this.#reach(to), this.cells[to].focus();
    event.preventDefault();
    event.stopPropagation();
  }

  /** The cell that a key leads to; null where it means nothing here. */
  #next(key) {
    const {at, limit} = this;
    if (key === "ArrowUp" || key === "ArrowDown") return this.#line(key === "ArrowUp" ? -1 : 1);
    return {ArrowLeft: Math.max(0, at - 1), ArrowRight: Math.min(limit - 1, at + 1), Home: 0, End: limit - 1}[key] ?? null;
  }

  /** The cell above or below the one that the keyboard is at. */
  #line(step) {
    const [x, y] = middle(this.cells[this.at]);
    let line = null, best = this.at, least = Infinity;
    for (let i = this.at + step; i >= 0 && i < this.limit; i += step) {
      const [left, top] = middle(this.cells[i]);
      if (Math.abs(top - y) < SAME_LINE) continue;
      line ??= top;
      if (Math.abs(top - line) > SAME_LINE) break;
      if (Math.abs(left - x) < least) [best, least] = [i, Math.abs(left - x)];
    }
    return best;
  }
}

/** The position of a cell, null for what is no cell. */
function indexOf(target) {
  const at = target.closest?.(".cell")?.dataset.at;
  return at === undefined ? null : Number(at);
}

function middle(cell) {
  const box = cell.getClientRects()[0];
  return [box.left + box.width / 2, box.top + box.height / 2];
}

/** Write a cell's state into its element, touching only what differs from before. */
function draw(node, state) {
  const key = JSON.stringify(state);
  if (node.key === key) return;
  node.key = key;
  node.className = `cell ${state.kind}`;
  node.textContent = state.text;
  node.isHidden = Boolean(state.isHidden);
  node.style.setProperty("--heat", state.heat ?? 0);
  node.style.setProperty("--letters", state.text.length);
  for (const [name, value] of [["cause", state.cause], ["change", state.change], ["pick", state.pick]]) {
    if (value) node.dataset[name] = value;
    else delete node.dataset[name];
  }
  if (state.isHidden) node.setAttribute("aria-hidden", "true");
  else node.removeAttribute("aria-hidden");
}
