// Inputs made of what the server says of its fields: decoders with their settings, and the options of a request.

import {el, setText} from "./dom.js";

/** One field as a labelled input; its value is "" where nothing was changed. */
function input(field, prefix) {
  const id = `${prefix}-${field.name}`;
  const isSet = field.default !== null && field.default !== "";
  const choices = field.type === "bool" ? ["true", "false"] : field.allowed.includes(" | ") ? field.allowed.split(" or none")[0].split(" | ") : null;
  const shown = isSet ? String(field.default) : "none";
  const about = field.about + (field.allowed && !choices ? ` · ${field.allowed.replace(/\[(\S+), inf\)/, "$1 or more")}` : "");
  const how = {id, "aria-describedby": `${id}-hint`};
  const control = choices
    ? el("select", how, el("option", {value: ""}, shown), choices.filter((one) => one !== shown).map((one) => el("option", {value: one}, one)))
    : el("input", {...how, placeholder: shown, autocomplete: "off", spellcheck: "false",
      inputmode: field.type === "int" ? "numeric" : field.type === "float" ? "decimal" : null});
  const name = field.name.replaceAll("_", " ");
  const node = el("label", {class: "field", for: id}, el("span", {}, name), control);
  return {node, control, field, hint: el("span", {id: `${id}-hint`, hidden: true}, about), told: `${name}: ${about}`};
}

/** Inputs beside each other, and below them what the one is for that was gone to last. */
function group(inputs) {
  const line = el("p", {class: "hint quiet", "aria-hidden": "true"}, "Empty fields take the server's values, shown in grey.");
  for (const {node, control, told} of inputs) {
    control.addEventListener("focus", () => setText(line, told));
    node.addEventListener("pointerenter", () => setText(line, told));
  }
  return el("div", {class: "fields"}, inputs.map((one) => one.node), inputs.map((one) => one.hint), line);
}

/** The values of inputs that were changed, by name. */
const changed = (inputs) => Object.fromEntries(inputs.filter(({control}) => control.value.trim() !== "")
  .map(({field, control}) => [field.name, control.value.trim()]));

/** One decoder to run: which, and its settings. */
export class DecoderChoice {
  static count = 0;

  constructor(decoders, chosen, {onremove}) {
    this.decoders = decoders;
    this.number = (DecoderChoice.count += 1);
    const option = (name) => el("option", {value: name, selected: name === chosen}, name);
    this.select = el("select", {"aria-label": `Decoder ${this.number}`, onchange: () => this.#show()},
      el("optgroup", {label: "decoders"}, decoders.map((one) => option(one.name))),
      el("optgroup", {label: "presets"}, decoders.flatMap((one) => Object.keys(one.presets)).map(option)));
    if (!this.#known(chosen)) this.select.prepend(option(chosen));
    this.remove = el("button", {type: "button", class: "link", onclick: () => onremove(this)}, "Remove");
    this.about = el("p", {class: "about quiet"});
    this.settings = el("details", {}, el("summary", {}, "Settings"));
    this.node = el("div", {class: "decoder", role: "group", "aria-label": `Decoder ${this.number}`},
      el("div", {class: "row"}, this.select, this.remove), this.about, this.settings);
    this.#show();
  }

  #known(spec) {
    return this.decoders.find((one) => one.name === spec.split(":")[0].split("/")[0]);
  }

  #show() {
    const decoder = this.#known(this.select.value);
    this.about.textContent = decoder?.about ?? "";
    this.inputs = (decoder?.fields ?? []).map((field) => input(field, `decoder-${this.number}`));
    this.settings.replaceChildren(this.settings.firstChild, group(this.inputs));
    this.settings.hidden = !this.inputs.length || this.select.value.includes("/");
    this.remove.setAttribute("aria-label", `Remove ${this.select.value}`);
  }

  /** The decoder as it is typed: a name, or `name:field=value,...`. */
  get spec() {
    const values = this.select.value.includes("/") ? [] : Object.entries(changed(this.inputs));
    const own = values.map(([name, value]) => `${name}=${value.includes(",") ? `(${value})` : value}`);
    return this.select.value + (own.length ? `:${own.join(",")}` : "");
  }
}

/** The options of a request: the first few in sight, the others folded away. */
export class OptionInputs {
  constructor(fields, first) {
    const inputs = new Map(fields.map((field) => [field.name, input(field, "option")]));
    this.inputs = [...inputs.values()];
    const rest = this.inputs.filter(({field}) => !first.includes(field.name));
    this.nodes = [group(first.map((name) => inputs.get(name))), el("details", {}, el("summary", {}, "More options"), group(rest))];
  }

  /** What was changed, as the object `ripple` of a request has it. */
  get values() {
    return Object.fromEntries(this.inputs.map(({field, control}) => [field, control.value.trim()]).filter(([, text]) => text !== "")
      .map(([field, text]) => [field.name, field.type === "int" && /^\d+$/.test(text) ? Number(text) : text]));
  }
}

/** A button that adds something. */
export const addButton = (text, act) => el("button", {type: "button", class: "plain", onclick: act}, text);
