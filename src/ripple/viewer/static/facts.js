// What is told of runs beside their canvases: the prompt, how they were asked, and where they differ.

import {counted, el, setText} from "./dom.js";

const ALWAYS = ["length", "cache", "seed"]; // told of every run; the others only where runs differ in them
const ASKED = [...ALWAYS, "block", "lookahead", "temperature"];
const ENDS = {end: "ended with an end token", length: "filled the canvas without an end token", stop: "ended at a stop string",
  cancelled: "cancelled", incomplete: "left masks"};

/** How runs were asked and ended: `shared` by all, and `own`, a list for each. */
export function facts(recordings) {
  const shared = [], own = recordings.map(() => []);
  const tell = (values, isAlways) => {
    if (values.some((value) => value !== values[0])) values.forEach((value, i) => own[i].push(value));
    else if (isAlways) shared.push(values[0]);
  };
  tell(recordings.map((one) => one.model), true);
  for (const name of ASKED) tell(recordings.map(({start}) => `${name} ${start?.[name] ?? "none"}`), ALWAYS.includes(name));
  tell(recordings.map(ending), true);
  return {shared: shared.filter(Boolean), own: own.map((one) => one.filter(Boolean))};
}

const ending = ({end}) => (end ? ENDS[end.finish] ?? end.finish : "cut off");

/** Whether runs answer the same prompt. */
export const haveOnePrompt = (recordings) => new Set(recordings.map(({start}) => JSON.stringify(start?.prompt))).size === 1;

/** A name for each run: its decoder, and a number where several have the same. */
export function names(recordings) {
  const titles = recordings.map((one) => one.title);
  return titles.map((title, i) => {
    const earlier = titles.slice(0, i).filter((one) => one === title).length;
    return titles.indexOf(title) === titles.lastIndexOf(title) ? title : `${title} (${earlier + 1})`;
  });
}

/** Where the answer of a run first differs from another's, which has a name; null where they cannot be compared. */
export function difference(one, other, name) {
  if (!one.end || !other.end || !haveOnePrompt([one, other])) return null;
  const [a, b] = [one, other].map(({last, tail}) => last.cells.slice(0, tail.from).map((cell) => cell.token));
  const at = Array.from({length: Math.max(a.length, b.length)}).findIndex((_, i) => a[i] !== b[i]);
  return at < 0 ? `same tokens as ${name}` : `differs from ${name} at position ${at}`;
}

/** The prompt on one line, which opens. */
export class Prompt {
  constructor() {
    this.line = el("span", {class: "prompt-line"});
    this.text = el("pre", {class: "prompt-text"});
    this.node = el("details", {class: "prompt"}, el("summary", {}, el("span", {}, "Prompt"), this.line), this.text);
  }

  show({start}) {
    if (!start) return;
    const {prompt, prompt_text: text} = start;
    setText(this.text, text || prompt.join(" "));
    setText(this.line, (text || counted(prompt.length, "token")).replace(/<\|\w+\|>/g, " ").trim());
  }
}
