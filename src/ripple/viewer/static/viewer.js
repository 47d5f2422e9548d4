// The viewer of one recording: canvas, counters, timeline, and the lookahead of the forward that is shown.

import {CanvasView, HINT} from "./canvas.js";
import {Timeline} from "./chart.js";
import {ChoicePanel} from "./choice.js";
import {Colours} from "./colours.js";
import {clock, counted, el, fixed, icon, isForView, isWide, quoted, setPlaying, setText, unique} from "./dom.js";
import {Prompt} from "./facts.js";

const SPEEDS = {2: "2 a second", 4: "4 a second", 8: "8 a second", 16: "16 a second", 0: "as it ran"}; // forwards
const SHORT = 0.35; // of the screen's height: such a canvas may stay in sight beside the candidates

/** Shows one recording and lets people move through it. */
export class Viewer {
  constructor(recording, {isLive = false} = {}) {
    this.recording = recording;
    this.isLive = isLive; // follows the last frame as events come in
    this.at = 0;
    this.preview = null;
    this.prompt = new Prompt();
    this.colours = new Colours(() => this.render());
    this.pointed = el("p", {class: "pointed quiet", id: unique("story")});
    this.canvas = new CanvasView({story: this.pointed.id, ontell: () => this.#tell(), onleave: () => this.focus(), onpick: (nfe, isPointer) => {
      this.seek(nfe);
      if (isPointer) this.focus(); // the arrows go from forward to forward again
    }});
    this.timeline = new Timeline({onseek: (k) => this.seek(k)});
    this.choice = new ChoicePanel({onpreview: (branch) => this.#preview(branch), onnext: () => this.nextChoice(1)});
    this.status = el("p", {class: "visually-hidden", role: "status"});
    this.text = el("pre", {class: "text", tabindex: 0, "aria-label": "Text at this moment"});
    this.counters = el("dl", {class: "counters"});
    this.board = el("div", {class: "panel board"}, this.colours.toolbar, this.canvas.node, this.pointed);
    this.stage = el("div", {class: "stage"},
      el("div", {class: "column"},
        this.board, this.colours.legend,
        el("div", {class: "panel transport"}, this.timeline.node, this.#buttons(), this.#pace()),
        el("details", {class: "panel moment", open: isWide()}, el("summary", {}, "Text at this moment"), this.text)),
      el("div", {class: "column aside"}, this.counters, this.choice.node));
    this.empty = el("p", {class: "quiet"}, "This run has not begun.");
    this.node = el("section", {class: "viewer", "aria-label": "Viewer"}, this.prompt.node, this.stage, this.empty, this.status);
    this.render();
  }

  #buttons() {
    const button = (label, sign, act) => el("button", {type: "button", class: `icon ${sign}`, "aria-label": label, title: label, onclick: act}, icon(sign));
    this.play = button("Play (space)", "play", () => this.toggle());
    this.play.classList.add("main");
    this.next = button("Next lookahead (P)", "pivot", () => this.nextChoice(1));
    this.when = el("span", {class: "when"});
    this.where = el("span", {class: "where"}, el("span"), this.when);
    return el("div", {class: "buttons"},
      button("First (Home)", "first", () => this.seek(0)), button("Back (left arrow)", "back", () => this.seek(this.at - 1)), this.play,
      button("Forward (right arrow)", "forward", () => this.seek(this.at + 1)), button("Last (End)", "last", () => this.seek(this.recording.n)),
      this.next, this.where);
  }

  /** What is set once: the meaning of the dots, the axis, the speed. */
  #pace() {
    const dot = (kind) => el("i", {class: `dot ${kind}`});
    this.dots = el("span", {class: "dots quiet"}, "lookahead", el("span", {class: "key"}, dot("taken"), "won"), el("span", {class: "key"}, dot(""), "none"));
    this.speed = 4;
    const speed = el("select", {"aria-label": "Speed, forwards", onchange: (event) => (this.speed = Number(event.target.value))},
      Object.entries(SPEEDS).sort(([a], [b]) => (Number(a) || 99) - (Number(b) || 99))
        .map(([value, text]) => el("option", {value, selected: value === "4"}, text)));
    const axis = el("label", {class: "check"}, el("input", {type: "checkbox", onchange: (event) => {
      this.timeline.byTime = event.target.checked;
      this.render();
    }}), "axis in ms");
    return el("div", {class: "pace"}, this.dots, axis, speed);
  }

  /** Take in the next event of a run that is still going on. */
  feed(event) {
    const isAtEnd = this.at >= this.recording.n;
    this.recording.feed(event);
    if (isAtEnd) this.at = this.recording.n;
    this.soon();
  }

  /** The run is over: what follows is a replay. */
  finish() {
    this.isLive = false;
    this.render();
    this.announce();
  }

  /** Draw before the next picture of the screen, however often this is called until then. */
  soon() {
    this.pending ??= requestAnimationFrame(() => {
      this.pending = undefined;
      this.render();
    });
  }

  /** Give the keyboard to the timeline, where the arrows go from forward to forward. */
  focus() {
    this.timeline.node.focus({preventScroll: true});
  }

  /** Show the state after forward k. */
  seek(k) {
    this.at = Math.max(0, Math.min(this.recording.n, k));
    this.preview = null;
    this.#paint();
    if (!this.timer) this.announce();
  }

  /** Go to the next forward (or the one before) that compared candidates. */
  nextChoice(step) {
    const {frames, n} = this.recording;
    for (let i = 1; i <= n + 1; i += 1) {
      const k = (this.at + step * i + (n + 1) * 2) % (n + 1);
      if (frames[k].choice) return this.seek(k);
    }
  }

  toggle() {
    if (this.timer) return this.pause();
    if (this.at >= this.recording.n) this.seek(0);
    setPlaying(this.play, true);
    this.#tick();
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    setPlaying(this.play, false);
    this.announce();
  }

  #tick() {
    const {frames, n} = this.recording;
    if (this.at >= n) return this.pause();
    const wait = this.speed ? 1 / this.speed : frames[this.at + 1].t - frames[this.at].t;
    this.timer = setTimeout(() => {
      this.seek(this.at + 1);
      this.#tick();
    }, 1000 * Math.max(wait, 0.016));
  }

  #preview(branch) {
    this.preview = branch;
    this.#canvas();
    this.#tell();
  }

  /** Say what is seen: a branch, the story of a position, or how to get one. */
  #tell() {
    const stands = this.preview?.edits.map((edit) => `${quoted(this.recording.piece(edit.token))} at position ${edit.pos}`).join(" and ");
    setText(this.pointed, !this.preview ? this.canvas.story ?? HINT
      : stands ? `What the rest would become with ${stands}; underlined is what changes.` : "What the model would say now, with nothing new committed.");
  }

  /** Say where we are to screen readers. */
  announce() {
    const {frames, n} = this.recording, frame = frames[this.at];
    if (!frame) return;
    setText(this.status, `Forward ${this.at} of ${n}, ${counted(this.recording.masked(frame), "position")} masked.${frame.choice ? " A lookahead chose here." : ""}`);
  }

  /** Draw everything anew: the recording or a setting has changed. */
  render() {
    const {recording} = this, isEmpty = !recording.last; // a lane of a race that waits, or that was refused
    this.prompt.node.hidden = this.stage.hidden = isEmpty;
    this.empty.hidden = !isEmpty;
    if (isEmpty) return;
    this.prompt.show(recording);
    this.next.disabled = !recording.frames.some((frame) => frame.choice);
    this.dots.hidden = !recording.last.lookaheads;
    this.timeline.draw(recording, this.at);
    this.#paint();
    this.board.classList.toggle("is-short", this.canvas.node.offsetHeight < SHORT * innerHeight);
  }

  #paint() {
    const {recording, at} = this, frame = recording.frames[at];
    if (!frame) return;
    this.timeline.move(at);
    this.#canvas();
    this.#tell();
    this.choice.show(recording, frame);
    setText(this.where.firstChild, `forward ${at} of ${recording.n}`);
    setText(this.when, ` · ${clock(frame.t)}`);
    const isEnd = recording.end && at === recording.n;
    setText(this.text, (isEnd && recording.end.text) || recording.text(frame.cells));
    this.#count(frame);
    this.colours.explain([[recording, frame]]);
  }

  #canvas() {
    const {mode, guesses} = this.colours;
    this.canvas.show(this.recording, this.recording.frames[this.at], {mode, guesses, preview: this.preview, isLive: this.isLive});
  }

  #count(frame) {
    const {recording} = this, tokens = recording.nTokens(frame.cells), {from} = recording.tail, all = frame.cells.length;
    const rows = [
      ["forwards", String(frame.nfe), frame.lookaheads ? counted(frame.lookaheads, "lookahead") : "all plain"],
      ["tokens / forward", frame.nfe ? fixed(tokens / frame.nfe) : "–", counted(tokens, "token")],
      ["canvases", String(frame.total), frame.nfe ? `${frame.canvases} in this forward` : ""],
      ["time", clock(frame.t), recording.shared ? "beside other runs" : "since admission"],
      ["masked", String(recording.masked(frame)), recording.end && from < all ? `of ${from} used` : `of ${all}`],
      ["mean entropy", frame.entropy === null ? "–" : fixed(frame.entropy), "nats, where read"],
    ];
    if (!this.values) {
      this.values = rows.map(([name]) => {
        const value = el("b"), note = el("small");
        this.counters.append(el("div", {}, el("dt", {}, name), el("dd", {}, value, note)));
        return [value, note];
      });
    }
    rows.forEach(([, value, note], i) => {
      setText(this.values[i][0], value);
      setText(this.values[i][1], note);
    });
  }

  /** Take a key that was pressed anywhere; true where it meant something. */
  onkey(event) {
    const acts = {ArrowLeft: () => this.seek(this.at - 1), ArrowRight: () => this.seek(this.at + 1), Home: () => this.seek(0),
      End: () => this.seek(this.recording.n), " ": () => this.toggle(), p: () => this.nextChoice(1), P: () => this.nextChoice(-1)};
    if (!acts[event.key] || !this.recording.last || !isForView(event)) return false;
    if (event.key !== " " && this.timer) this.pause();
    acts[event.key]();
    event.preventDefault();
    return true;
  }
}
