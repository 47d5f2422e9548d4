// The conversation of the playground: what was said, and the answer as it is written.

import {el, setText} from "./dom.js";

/** Turns in a list; what is being asked joins them when it is answered. */
export class Conversation {
  constructor(list) {
    this.list = list;
    this.turns = []; // as the server takes them
    this.asked = null;
  }

  /** Ask something: returns the conversation with it. */
  ask(content) {
    this.asked = {role: "user", content};
    this.answer = bubble({role: "assistant", content: "…"});
    this.list.append(bubble(this.asked), this.answer);
    this.list.hidden = false;
    this.#scroll();
    return [...this.turns, this.asked];
  }

  /** Show what of the answer can be read by now. */
  write(text) {
    setText(this.answer.lastChild, text || "…");
    this.#scroll();
  }

  /** The answer is whole. */
  keep(content) {
    this.turns.push(this.asked, {role: "assistant", content});
    this.#show();
  }

  /** There was no whole answer: forget the question, and return it. */
  drop() {
    const {content} = this.asked;
    this.#show();
    return content;
  }

  reset() {
    this.turns = [];
    this.#show();
  }

  #show() {
    this.asked = null;
    this.list.replaceChildren(...this.turns.map(bubble));
    this.list.hidden = !this.turns.length;
    this.#scroll();
  }

  #scroll() {
    this.list.scrollTop = this.list.scrollHeight;
  }
}

const bubble = ({role, content}) => el("li", {class: role}, el("span", {class: "visually-hidden"}, `${role}: `), el("span", {}, content));
