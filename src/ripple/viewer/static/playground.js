// The playground: a prompt or a chat, one decoder or several, and the canvas as it fills.

import {Conversation} from "./chat.js";
import {decode, emptyPage, offers, Refused} from "./client.js";
import {clock, counted, el, isCalm, isTouched, isWide, setText} from "./dom.js";
import {names} from "./facts.js";
import {addButton, DecoderChoice, OptionInputs} from "./form.js";
import {asLines, download, fileName, filledPage} from "./share.js";
import {show} from "./show.js";
import {themeButton} from "./theme.js";
import {Recording} from "./trace.js";

const FIRST = ["length", "cache", "temperature", "seed"]; // options in sight
const at = (id) => document.getElementById(id);

/** The page's state: what the server offers, what was chosen, what is running. */
class Playground {
  constructor() {
    this.choices = [];
    this.recordings = [];
    this.chat = new Conversation(at("turns"));
    at("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
    at("prompt").addEventListener("keydown", (event) => this.#typed(event));
    at("stop").addEventListener("click", () => this.stopping?.abort());
    at("new-chat").addEventListener("click", () => {
      this.chat.reset();
      this.#showKind();
      at("prompt").focus();
    });
    at("save-page").addEventListener("click", () => this.#guarded(() => this.savePage()));
    at("save-trace").addEventListener("click", () => this.saveTraces());
    for (const radio of document.querySelectorAll("[name=kind]")) radio.addEventListener("change", () => this.#showKind());
    document.addEventListener("keydown", (event) => {
      if (event.target === at("prompt") || !event.target.closest?.("form")) this.view?.onkey(event);
    });
  }

  get isChat() {
    return document.querySelector("[name=kind]:checked").value === "chat";
  }

  /** Enter sends a chat's question, as people know it, and with Ctrl it runs a prompt, too. */
  #typed(event) {
    const isSent = event.ctrlKey || event.metaKey || (this.isChat && !event.shiftKey && !isTouched());
    if (event.key !== "Enter" || event.isComposing || !isSent) return;
    event.preventDefault();
    at("form").requestSubmit();
  }

  /** Ask the server what it offers, and build the form of it. */
  async load() {
    setText(at("status"), "Asking the server …");
    const isKnown = await this.#guarded(async () => {
      this.offer = await offers();
    });
    at("run").setAttribute("aria-disabled", "false");
    setText(at("status"), "");
    if (!isKnown) return setText(at("run"), "Try again");
    const {model, version, decoders, options, examples, has_chat: hasChat} = this.offer;
    at("facts").textContent = `${model} · ripple ${version}`;
    document.title = `Ripple · ${model}`;
    this.options = new OptionInputs(options, FIRST);
    at("options").replaceChildren(...this.options.nodes);
    this.more = addButton("Add a decoder to race", () => this.add(this.#another()));
    at("decoders").replaceChildren(this.more);
    this.decoders = decoders;
    this.add(this.offer.decoder);
    if (examples.length) at("examples").append(el("span", {class: "quiet"}, "Try"));
    at("examples").append(...examples.map(({name, prompt}) => el("button", {type: "button", class: "link", onclick: () => {
      this.#setKind("prompt"); // the problems that the embedded models were trained on are prompts
      at("prompt").value = prompt;
      at("prompt").focus();
    }}, name)));
    if (examples.length && !at("prompt").value) at("prompt").value = examples[0].prompt;
    document.querySelector("[value=chat]").disabled = !hasChat;
    this.#setKind(examples.length || !hasChat ? "prompt" : "chat");
  }

  #setKind(kind) {
    document.querySelector(`[value=${kind}]`).checked = true;
    this.#showKind();
  }

  /** Show what belongs to a chat, or to a prompt. */
  #showKind() {
    const {isChat, chat} = this, isBegun = isChat && chat.turns.length > 0;
    at("turns").hidden = !isBegun && !chat.asked;
    at("new-chat").hidden = !isBegun;
    at("forgets").hidden = !isBegun || this.offer.has_memory;
    at("examples").hidden = isBegun;
    setText(at("run"), this.choices.length > 1 ? "Race" : isChat ? "Send" : "Run");
  }

  /** Add a decoder to run. */
  add(name) {
    const choice = new DecoderChoice(this.decoders, name, {onremove: (one) => {
      this.choices = this.choices.filter((other) => other !== one);
      one.node.remove();
      this.more.focus();
      this.#count();
    }});
    this.choices.push(choice);
    this.more.before(choice.node);
    this.#count();
    if (this.choices.length > 1) choice.select.focus();
  }

  #count() {
    for (const choice of this.choices) choice.remove.hidden = this.choices.length === 1;
    at("together").hidden = this.choices.length === 1;
    this.#showKind();
  }

  /** A decoder that does not run yet. */
  #another() {
    const taken = new Set(this.choices.map((choice) => choice.select.value));
    return ["confidence", "rps", "glide", "default"].find((name) => !taken.has(name)) ?? this.offer.decoder;
  }

  /** Decode the prompt with every decoder that was chosen. */
  async run() {
    if (this.stopping || at("run").getAttribute("aria-disabled") === "true") return;
    if (!this.offer) return this.load();
    const said = at("prompt").value, {isChat} = this;
    const asked = isChat ? {messages: this.chat.ask(said)} : {prompt: said};
    if (isChat) at("prompt").value = "";
    const isTogether = this.choices.length > 1 && at("together").querySelector("input").checked;
    const shown = {view: this.view, recordings: this.recordings};
    this.recordings = this.choices.map((choice) => new Recording({name: choice.spec, model: this.offer.model, shared: isTogether}));
    this.view = null;
    this.stopping = new AbortController();
    this.#busy(true);
    const path = isChat ? "/v1/chat/completions" : "/v1/completions";
    const decodeOne = (recording) => this.#decode(recording, path, {...asked, stream: true,
      ripple: {...this.options.values, decoder: recording.name, stream: "canvas"}});
    const isDone = await this.#guarded(async () => {
      if (isTogether) await Promise.all(this.recordings.map(decodeOne));
      else for (const recording of this.recordings) await decodeOne(recording);
    });
    this.stopping.abort(); // of a race, what still runs when one lane failed
    this.stopping = null;
    if (isChat) this.#answered(isDone);
    this.#handOver(isChat, said);
    this.#busy(false);
    if (this.view) this.view.finish();
    else Object.assign(this, shown); // nothing came: what was shown before still is
    at("share").hidden = !this.recordings.some((one) => one.last);
    if (isDone) this.#sum();
  }

  async #decode(recording, path, body) {
    setText(at("status"), `Running ${recording.title} …`);
    const isAnswer = body.messages && recording === this.recordings[0]; // of a race, the first one's
    for await (const {events, pieces} of decode(path, body, this.stopping.signal)) {
      Object.assign(recording.pieces, pieces);
      for (const event of events) {
        if (this.view) this.view.feed(recording, event);
        else {
          recording.feed(event);
          this.view = show(at("view"), this.recordings, {isLive: true});
          at("view").removeAttribute("aria-busy");
          if (!isWide()) at("view").scrollIntoView(); // it stands below the form there
        }
      }
      if (isAnswer && recording.last) this.chat.write(recording.text(recording.last.cells));
    }
  }

  /** A question that was answered stays said; any other goes back into the box. */
  #answered(isDone) {
    if (isDone) this.chat.keep(this.recordings[0].end?.text ?? "");
    else {
      const question = this.chat.drop();
      at("prompt").value ||= question;
    }
    this.#showKind();
  }

  /** Give the keyboard to what comes next, unless the reader has gone elsewhere or types already. */
  #handOver(isChat, said) {
    const here = document.activeElement, isTyping = here === at("prompt") && at("prompt").value !== (isChat ? "" : said);
    if (isTyping || (here !== document.body && ![at("prompt"), at("run"), at("stop")].includes(here))) return;
    if (isChat && !isTouched()) at("prompt").focus({preventScroll: true});
    else if (this.view) this.view.focus();
    else at("run").focus({preventScroll: true});
  }

  /** Say how it went. */
  #sum() {
    const titles = names(this.recordings);
    setText(at("status"), this.recordings.map((one, i) => `${titles[i]}: ${counted(one.n, "forward")}, ${clock(one.last.t)}`).join(" · "));
    if (this.recordings.length > 1 && !isCalm()) this.view.replay();
  }

  async savePage() {
    const runs = this.recordings.filter((one) => one.last);
    download(fileName(runs, "html"), "text/html", filledPage(await emptyPage(), runs));
    setText(at("status"), "Saved: the page holds the prompt and the whole run, and opens without a server.");
  }

  saveTraces() {
    for (const one of this.recordings.filter((recording) => recording.last)) download(fileName([one], "jsonl"), "application/jsonl", asLines(one));
  }

  /** Do something; true if it worked, and if not, what the server said is shown. */
  async #guarded(act) {
    at("error").hidden = true;
    try {
      await act();
      return true;
    } catch (error) {
      if (error.name === "AbortError") {
        setText(at("status"), "Stopped.");
        return false;
      }
      setText(at("status"), "");
      at("error").textContent = error instanceof Refused ? error.message : `The page failed: ${error.message}`;
      at("error").hidden = false;
      return false;
    }
  }

  #busy(isBusy) {
    at("run").setAttribute("aria-disabled", String(isBusy)); // not disabled: it keeps the focus
    at("stop").hidden = !isBusy;
    at("main").classList.toggle("is-busy", isBusy);
    if (isBusy) at("view").setAttribute("aria-busy", "true"); // until the first event comes
    else at("view").removeAttribute("aria-busy");
    if (isBusy) at("share").hidden = true;
  }
}

themeButton(at("theme"));
const playground = new Playground();
playground.load();
