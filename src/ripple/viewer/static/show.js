// Puts recordings on a page: one alone, or a race with a tab for each.

import {el} from "./dom.js";
import {names} from "./facts.js";
import {Race} from "./race.js";
import {Viewer} from "./viewer.js";

/** Show recordings in `host`; returns what takes the page's keys. */
export function show(host, recordings, {isLive = false} = {}) {
  if (recordings.length > 1) return new Tabs(host, recordings, isLive);
  const viewer = new Viewer(recordings[0], {isLive});
  host.replaceChildren(viewer.node);
  viewer.seek(recordings[0].n);
  viewer.render();
  return {onkey: (event) => viewer.onkey(event), feed: (recording, event) => viewer.feed(event), finish: () => viewer.finish(),
    focus: () => viewer.focus(), replay: () => viewer.toggle()};
}

/** A race, and each of its runs alone. */
class Tabs {
  constructor(host, recordings, isLive) {
    this.at = 0;
    this.race = new Race(recordings, {isLive, onopen: (recording, k) => this.#open(1 + recordings.indexOf(recording), k)});
    this.views = [this.race, ...recordings.map((recording) => new Viewer(recording))];
    this.#toEnds();
    this.tabs = ["Race", ...names(recordings)].map((name, i) => el("button",
      {type: "button", role: "tab", id: `tab-${i}`, "aria-controls": "tab-panel", onclick: () => this.pick(i)}, name));
    this.list = el("div", {class: "tabs", role: "tablist", "aria-label": "Runs"}, this.tabs);
    this.list.addEventListener("keydown", (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (!step) return;
      this.pick((this.at + step + this.tabs.length) % this.tabs.length);
      this.tabs[this.at].focus();
      event.stopPropagation();
    });
    this.panel = el("div", {role: "tabpanel", id: "tab-panel"});
    host.replaceChildren(this.list, this.panel);
    this.pick(0);
  }

  pick(i) {
    this.views[this.at]?.pause?.();
    this.at = i;
    this.tabs.forEach((tab, k) => {
      tab.setAttribute("aria-selected", String(k === i));
      tab.tabIndex = k === i ? 0 : -1;
    });
    this.panel.setAttribute("aria-labelledby", `tab-${i}`);
    this.panel.replaceChildren(this.views[i].node);
    this.views[i].render();
  }

  /** Show one run alone, after its forward k. */
  #open(i, k) {
    this.pick(i);
    this.views[i].seek(k);
    this.views[i].focus();
  }

  onkey(event) {
    return this.views[this.at].onkey(event);
  }

  feed(recording, event) {
    this.race.feed(recording, event);
    const view = this.views[this.at];
    if (view.recording !== recording) return;
    view.at = recording.n;
    view.soon();
  }

  focus() {
    this.views[this.at].focus();
  }

  replay() {
    this.race.toggle();
  }

  /** All runs are over: show how they ended. */
  finish() {
    this.#toEnds();
    this.race.finish();
    this.views[this.at].render();
  }

  #toEnds() {
    for (const view of this.views.slice(1)) view.at = view.recording.n;
  }
}
