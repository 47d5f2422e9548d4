// A race: several runs of one prompt on one clock.

import {CanvasView, HINT} from "./canvas.js";
import {Colours} from "./colours.js";
import {clock, counted, el, fixed, icon, isForView, setPlaying, setText, unique} from "./dom.js";
import {difference, facts, haveOnePrompt, names, Prompt} from "./facts.js";

const SECONDS = 6; // that the slowest run takes in a replay

/** Lanes of recordings, and a clock to move; `onopen(recording, k)` shows one of them alone, after its forward k. */
export class Race {
  constructor(recordings, {isLive = false, onopen = () => {}} = {}) {
    this.onopen = onopen;
    this.isLive = isLive; // runs that have not begun may still begin
    this.recordings = recordings;
    this.prompt = new Prompt();
    this.colours = new Colours(() => this.render());
    this.pointed = el("p", {class: "pointed quiet", id: unique("story")});
    this.play = el("button", {type: "button", class: "icon main", "aria-label": "Play (space)", title: "Play (space)", onclick: () => this.toggle()}, icon("play"));
    this.slider = el("input", {type: "range", min: 0, max: 1000, value: 1000, step: 1, "aria-label": "Time",
      oninput: () => this.seek((this.slider.value / 1000) * this.longest)});
    this.where = el("span", {class: "where"});
    this.status = el("p", {class: "visually-hidden", role: "status"});
    const titles = names(recordings);
    this.lanes = recordings.map((recording, i) => this.#lane(recording, titles[i]));
    this.node = el("section", {class: "race", "aria-label": "Race"}, this.prompt.node, el("div", {class: "panel palette"}, this.colours.toolbar, this.colours.legend),
      el("div", {class: "lanes"}, this.lanes.map((lane) => lane.node)),
      el("div", {class: "panel transport"}, el("div", {class: "buttons"}, this.play, this.slider, this.where), this.pointed), this.status);
    this.t = this.longest;
    this.render();
  }

  get longest() {
    return Math.max(0.001, ...this.recordings.map((recording) => recording.last?.t ?? 0));
  }

  #lane(recording, name) {
    const canvas = new CanvasView({story: this.pointed.id, ontell: () => this.#tell(), onleave: () => this.focus(),
      onpin: () => this.lanes.forEach((lane) => lane.canvas !== canvas && lane.canvas.unpin()), onpick: (nfe) => this.onopen(recording, nfe)});
    const told = el("p", {class: "lane-facts"}), own = el("p", {class: "lane-own"}), prompt = new Prompt();
    prompt.node.hidden = true;
    const bar = el("progress", {max: 1, value: 0, "aria-label": `Progress of ${name}`});
    const open = el("button", {type: "button", class: "link", "aria-label": `Open ${name}`, onclick: () => this.onopen(recording, lane.k)}, "Open");
    const node = el("article", {class: "panel lane", "aria-label": name}, el("header", {}, el("h2", {}, name), open, told, own), prompt.node, bar, canvas.node);
    const lane = {recording, name, canvas, open, told, own, prompt, bar, node, k: 0};
    return lane;
  }

  /** Take in an event of a lane that is running. */
  feed(recording, event) {
    recording.feed(event);
    this.t = null; // follow each lane to where it is
    this.pending ??= requestAnimationFrame(() => {
      this.pending = undefined;
      this.render();
    });
  }

  /** All runs are over: show how they ended. */
  finish() {
    this.isLive = false;
    this.seek(this.longest);
  }

  /** Give the keyboard to the clock. */
  focus() {
    this.slider.focus({preventScroll: true});
  }

  seek(t) {
    this.t = Math.max(0, Math.min(this.longest, t));
    this.#paint();
  }

  /** Draw everything anew: a recording or a setting has changed. */
  render() {
    const begun = this.recordings.filter((one) => one.last), isOne = haveOnePrompt(begun), {own} = facts(begun);
    this.prompt.node.hidden = !isOne || !begun.length;
    if (begun.length) this.prompt.show(begun[0]);
    begun.forEach((recording, i) => {
      const lane = this.lanes.find((one) => one.recording === recording);
      lane.prompt.node.hidden = isOne;
      lane.prompt.show(recording);
      const isDone = begun.every((one) => one.end);
      setText(lane.own, isDone ? own[i].join(" · ") : "");
    });
    this.#paint();
  }

  #paint() {
    const t = this.t ?? this.longest, {mode, guesses} = this.colours, shown = [];
    const best = this.recordings.every(({end}) => end) ? Math.min(...this.recordings.map(({n}) => n)) : null;
    for (const lane of this.lanes) {
      const {recording, canvas, open, bar, node} = lane, {frames} = recording;
      node.classList.toggle("is-waiting", !recording.last);
      open.hidden = canvas.node.hidden = !recording.last;
      if (!recording.last) continue;
      lane.k = Math.max(0, frames.findLastIndex((frame) => frame.t <= t));
      const frame = frames[lane.k], isDone = Boolean(recording.end) && lane.k === recording.n;
      canvas.show(recording, frame, {mode, guesses, isLive: !recording.end});
      shown.push([recording, frame]);
      bar.value = isDone ? 1 : 1 - recording.masked(frame) / Math.max(1, recording.end ? recording.tail.from : frame.cells.length);
      node.classList.toggle("is-done", isDone);
      node.classList.toggle("is-best", isDone && recording.n === best);
    }
    for (const lane of this.lanes) setText(lane.told, this.#told(lane));
    this.colours.explain(shown);
    this.#tell();
    this.slider.value = Math.round((1000 * t) / this.longest);
    this.slider.setAttribute("aria-valuetext", clock(t));
    setText(this.where, clock(t));
  }

  /** A lane in numbers. */
  #told({recording, node, k}) {
    if (!recording.last) return this.isLive ? "waiting" : "did not begin";
    const frame = recording.frames[k], first = this.lanes[0], tokens = recording.nTokens(frame.cells);
    const isOther = node.classList.contains("is-done") && recording !== first.recording;
    return [counted(frame.nfe, "forward"), counted(frame.total, "canvas"), `${frame.nfe ? fixed(tokens / frame.nfe) : "0"} tokens per forward`,
      clock(frame.t), isOther ? difference(first.recording, recording, first.name) : null].filter(Boolean).join(" · ");
  }

  #tell() {
    const lane = this.lanes.find((one) => one.canvas.over !== null) ?? this.lanes.find((one) => one.canvas.story);
    const story = lane?.canvas.story;
    setText(this.pointed, story ? `${lane.name}: ${story}` : HINT);
  }

  toggle() {
    if (this.playing) return this.pause();
    if (this.t === null || this.t >= this.longest) this.t = 0;
    setPlaying(this.play, true);
    const stretch = SECONDS / this.longest, start = performance.now() - 1000 * this.t * stretch;
    const step = (now) => {
      this.seek((now - start) / 1000 / stretch);
      if (this.t >= this.longest) return this.pause();
      this.playing = requestAnimationFrame(step);
    };
    this.playing = requestAnimationFrame(step);
  }

  pause() {
    cancelAnimationFrame(this.playing);
    this.playing = null;
    setPlaying(this.play, false);
    setText(this.status, this.lanes.map(({name, told}) => `${name}: ${told.textContent}`).join(". "));
  }

  /** Take a key that was pressed anywhere; true where it meant something. */
  onkey(event) {
    const step = this.longest / 50, t = this.t ?? this.longest;
    const acts = {ArrowLeft: () => this.seek(t - step), ArrowRight: () => this.seek(t + step), Home: () => this.seek(0),
      End: () => this.seek(this.longest), " ": () => this.toggle()};
    if (!acts[event.key] || !isForView(event)) return false;
    if (event.key !== " " && this.playing) this.pause();
    acts[event.key]();
    event.preventDefault();
    return true;
  }
}
