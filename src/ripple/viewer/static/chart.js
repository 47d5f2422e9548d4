// The timeline: per forward, what was committed and how unsure the model was. It is the scrubber, too.

import {clock, counted, el, fixed, svg} from "./dom.js";
import {CAUSES} from "./trace.js";

const SIDE = 10; // px beside the drawing
const TALL = {label: 11, room: 44, gap: 20}, LOW = {label: 10, room: 24, gap: 16}; // px; low where there is little room
const NARROW = 26; // rem

/** A slider over the forwards of a recording; `onseek(k)` is called when somebody moves it. */
export class Timeline {
  constructor({onseek}) {
    this.onseek = onseek;
    this.byTime = false;
    this.drawing = svg("svg", {class: "drawing", "aria-hidden": "true"});
    this.node = el("div", {class: "timeline", role: "slider", tabindex: 0, "aria-label": "Forward", "aria-valuemin": 0},
      this.drawing);
    this.node.addEventListener("pointerdown", (event) => {
      this.node.setPointerCapture(event.pointerId);
      this.#seek(event);
    });
    this.node.addEventListener("pointermove", (event) => event.buttons && this.#seek(event));
    new ResizeObserver(() => this.recording && this.draw(this.recording, this.at)).observe(this.node);
  }

  #seek(event) {
    const x = event.clientX - this.node.getBoundingClientRect().left;
    const frames = this.recording.frames;
    let best = 0;
    frames.forEach((frame, k) => {
      if (Math.abs(this.#x(k) - x) < Math.abs(this.#x(best) - x)) best = k;
    });
    this.onseek(best);
  }

  get width() {
    return this.node.clientWidth || 600;
  }

  #x(k) {
    const {frames, n} = this.recording;
    const share = this.byTime ? frames[k].t / (frames[n].t || 1) : k / Math.max(1, n);
    return SIDE + share * (this.width - 2 * SIDE);
  }

  /** The heights of the drawing's parts: the curve, the bars below it, then the track and its numbers. */
  get #rows() {
    const {label, room, gap} = this.width < NARROW * 16 ? LOW : TALL;
    const top = label + 5, curve = top + room, bars = curve + gap + room, track = bars + 14;
    return {label, top, curve, caption: curve + gap - 5, floor: curve + gap, bars, track, numbers: track + 18, height: track + 21};
  }

  /** Draw the whole timeline with the handle at frame k. */
  draw(recording, k) {
    this.recording = recording;
    const {frames, n} = recording, {width} = this, {top, track, height} = this.#rows;
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.drawing.setAttribute("height", height);
    const parts = [line("track", SIDE, width - SIDE, track)];
    if (n) parts.push(...this.#curve(frames), ...this.#bars(frames), ...this.#numbers(), ...this.#marks(frames));
    this.cursor = svg("line", {class: "cursor", y1: top, y2: track});
    this.handle = svg("circle", {class: "handle", cy: track, r: 6});
    this.drawing.replaceChildren(...parts, this.cursor, this.handle);
    this.move(k);
  }

  /** A band's name at its left, its highest value at its right, and the line of that value. */
  #band(name, most, text, top) {
    return [line("grid", SIDE, this.width - SIDE, top), label(name, SIDE, text), label(most, this.width - SIDE, text, "end")];
  }

  #bars(frames) {
    const {floor, bars, caption} = this.#rows;
    const most = Math.max(...frames.map((frame) => total(frame)), 1);
    const width = Math.max(2, Math.min(14, (this.#x(frames.length - 1) - this.#x(0)) / frames.length - 2));
    const drawn = frames.slice(1).flatMap((frame, i) => {
      let y = bars;
      const x = this.#x(i + 1) - width / 2;
      const back = frame.changes.revoked ? [svg("rect", {class: "revoked", x, y: bars + 2, width, height: 3})] : [];
      return back.concat(Object.keys(CAUSES).filter((cause) => frame.changes[cause] && cause !== "revoked").map((cause) => {
        const height = Math.max(1.5, ((bars - floor) * frame.changes[cause]) / most);
        y -= height;
        return svg("rect", {class: "bar", "data-cause": cause, x, y, width, height, rx: 1});
      }));
    });
    return [...this.#band("committed per forward", counted(most, "token"), caption, floor), ...drawn];
  }

  #curve(frames) {
    const {label: text, top, curve} = this.#rows;
    const known = frames.map((frame, k) => [this.#x(k), frame.entropy]).filter(([, entropy]) => entropy !== null);
    if (!known.length) return [];
    const most = Math.max(...known.map(([, entropy]) => entropy), 0.1);
    const points = known.map(([x, entropy]) => `${x.toFixed(1)},${(curve - ((curve - top) * entropy) / most).toFixed(1)}`);
    return [...this.#band("mean entropy where read", `${fixed(most)} nats`, text, top),
      svg("polygon", {class: "area", points: `${known[0][0]},${curve} ${points.join(" ")} ${known.at(-1)[0]},${curve}`}),
      svg("polyline", {class: "curve", points: points.join(" ")})];
  }

  /** The numbers of the axis: forwards, or time. */
  #numbers() {
    const {frames, n} = this.recording, {numbers} = this.#rows, end = this.width - SIDE;
    const last = this.byTime ? frames[n].t : n, room = end - SIDE;
    const name = this.byTime ? clock(last) : counted(n, "forward");
    const step = round(last / Math.max(1, Math.min(n, room / 64)));
    const ticks = Array.from({length: Math.ceil(last / step) + 1}, (_, i) => [i * step, SIDE + (room * i * step) / (last || 1)]);
    return [...ticks.filter(([, x]) => x < end - 70).map(([value, x]) =>
      label(this.byTime ? clock(value) : value, x, numbers, value ? "middle" : "start")), label(name, end, numbers, "end")];
  }

  #marks(frames) {
    const {track} = this.#rows;
    return frames.slice(1).filter((frame) => frame.kind === "lookahead").map((frame) => {
      const isTaken = frame.choice?.candidates.some((one) => one.isChosen && !one.isStay);
      return svg("circle", {class: `mark${isTaken ? " taken" : ""}`, cx: this.#x(frame.nfe), cy: track, r: 3});
    });
  }

  /** Put the handle at frame k. */
  move(k) {
    this.at = k;
    const {recording} = this, frame = recording.frames[k], x = this.#x(k);
    this.cursor.setAttribute("x1", x);
    this.cursor.setAttribute("x2", x);
    this.handle.setAttribute("cx", x);
    this.node.setAttribute("aria-valuemax", recording.n);
    this.node.setAttribute("aria-valuenow", k);
    this.node.setAttribute("aria-valuetext", `forward ${k} of ${recording.n}, ${clock(frame.t)}, ${counted(recording.masked(frame), "position")} masked`);
  }
}

const line = (kind, x1, x2, y) => svg("line", {class: kind, x1, x2, y1: y, y2: y});

function label(text, x, y, anchor = "start") {
  const node = svg("text", {class: "label", x, y, "text-anchor": anchor});
  node.textContent = text;
  return node;
}

/** The next 1, 2 or 5 with zeros from a number on. */
function round(x) {
  const power = 10 ** Math.floor(Math.log10(x || 1));
  return power * [1, 2, 5, 10].find((one) => one * power >= x * 0.999);
}

const total = (frame) => Object.entries(frame.changes).reduce((sum, [cause, n]) => sum + (cause === "revoked" ? 0 : n), 0);
