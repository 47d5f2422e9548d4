// A trace forward by forward: what every position held, how sure the model was, what a lookahead compared.
// The events are those of docs/trace.md; they come from a file at once, or one by one from the server.

import {isSpecial, quoted} from "./dom.js";

/** Why a token was committed -> what that means. */
export const CAUSES = {
  standard: "passed the decoder's rule",
  fallback: "nothing passed, so the surest went alone",
  pivot: "won a search",
  branch: "the branch with the best future",
  forced: "the first of a block, by the cache's rule",
  next_token: "a block's first token, predicted by those before it",
  edit: "takes the place of a token that the model no longer believes",
  end: "follows a final end token",
  revoked: "masked again",
};

const MASKED = {token: null, cause: null, nfe: 0};

/** One run: `frames[k]` is the response after forward k and its decisions; frame 0 comes before the first. */
export class Recording {
  constructor({name = "", blame = null, shared = false, model = "", pieces = {}} = {}) {
    this.name = name;
    this.model = model;
    this.blame = blame; // number of the commit that cost the answer, from 1
    this.shared = shared; // whether other requests ran at the same time
    this.events = [];
    this.frames = [];
    this.pieces = {...pieces}; // text of token ids
    this.start = this.end = null;
    this.n_commits = 0;
    this.read = 0; // positions before this one were read or written so far
    this.written = 0; // and before this one written
  }

  /** Make a recording of all its events. */
  static of(events, facts = {}) {
    const recording = new Recording(facts);
    for (const event of events) recording.feed(event);
    return recording;
  }

  /** Take in the next event. */
  feed(event) {
    this.events.push(event);
    if (event.event === "forward" || event.event === "end") this.#settle();
    Object.assign(this.pieces, event.pieces);
    if (event.event === "start") this.#begin(event);
    else if (event.event === "forward") this.#forward(event);
    else if (event.event === "commit") this.#commit(event);
    else if (event.event === "revoke") this.#revoke(event);
    else if (event.event === "search") this.#choose(searched(this, event));
    else if (event.event === "branches") this.#choose(branched(this, event));
    else if (event.event === "end") this.end = event;
    if (this.frames.length) this.last.t = event.t;
  }

  get last() {
    return this.frames[this.frames.length - 1];
  }

  /** The number of forwards so far. */
  get n() {
    return Math.max(0, this.frames.length - 1);
  }

  /** The decoder as it was typed, or its name. */
  get title() {
    return this.name || this.start?.decoder || "";
  }

  /** The text of a token id. */
  piece(token) {
    return this.pieces[token] || `<${token}>`;
  }

  #begin(event) {
    this.start = event;
    this.first = event.prompt.length;
    const cells = Array(event.length).fill(MASKED);
    this.frames = [{nfe: 0, kind: "start", canvases: 0, total: 0, lookaheads: 0, window: [0, 0], cells, look: new Map(),
      branches: [], choice: null, adopted: null, changes: {}, entropy: null, t: event.t}];
  }

  #forward(event) {
    const {last, first} = this;
    const look = new Map(event.pos.map((pos, i) =>
      [pos - first, {token: event.token[i], p: event.p[i], entropy: event.entropy[i]}]));
    const branches = (event.branches ?? []).map((branch) => this.#branch(branch, look));
    this.read = Math.max(this.read, ...[...look.keys()].map((pos) => pos + 1));
    this.frames.push({
      nfe: event.nfe, kind: event.kind, canvases: event.canvases, total: last.total + event.canvases,
      lookaheads: last.lookaheads + (event.kind === "lookahead"), window: event.window.map((pos) => pos - first),
      cells: last.cells, look, branches, choice: null, adopted: null, changes: {},
      entropy: mean([...look.values()].map((row) => row.entropy)), t: event.t,
    });
  }

  /** What one branch would make of the rest: its edits, and its look at what they leave masked. */
  #branch(told, base) {
    const edits = told.edits.map(([pos, token]) => ({pos: pos - this.first, token}));
    const edited = new Set(edits.map((edit) => edit.pos));
    const changed = new Map(told.pos.map((pos, i) => [pos - this.first, told.token[i]]));
    const rest = [...base.keys()].filter((pos) => !edited.has(pos));
    const look = new Map(rest.map((pos, i) =>
      [pos, {token: changed.get(pos) ?? base.get(pos).token, entropy: told.entropy[i]}]));
    return {edits, look, changed, entropy: mean(told.entropy)};
  }

  /** A lookahead that led to no choice of its own: nothing was adopted. */
  #settle() {
    if (this.last && this.last.branches.length && !this.last.choice) this.#choose(adopted(this, null));
  }

  #commit(event) {
    if (!event.pos.length) return;
    const frame = this.last;
    this.n_commits += 1;
    if (event.cause === "branch" && !frame.choice && frame.branches.length) this.#choose(adopted(this, event));
    const look = frame.adopted?.look ?? frame.look;
    frame.cells = frame.cells.slice();
    event.pos.forEach((pos, i) => {
      const at = pos - this.first;
      const entropy = (look.get(at) ?? frame.look.get(at))?.entropy ?? null;
      frame.cells[at] = {token: event.token[i], p: event.p[i], cause: event.cause, nfe: frame.nfe, entropy,
        commit: this.n_commits};
    });
    this.written = Math.max(this.written, ...event.pos.map((pos) => pos - this.first + 1));
    this.read = Math.max(this.read, this.written);
    frame.changes[event.cause] = (frame.changes[event.cause] ?? 0) + event.pos.length;
  }

  #revoke(event) {
    const frame = this.last;
    frame.cells = frame.cells.slice();
    for (const pos of event.pos) frame.cells[pos - this.first] = {token: null, cause: "revoked", nfe: frame.nfe};
    frame.changes.revoked = (frame.changes.revoked ?? 0) + event.pos.length;
  }

  #choose(choice) {
    const frame = this.last;
    frame.choice = choice;
    frame.adopted = choice.candidates.find((one) => one.isChosen)?.branch ?? null;
  }

  /** The look that a frame's last decisions were made on: the adopted branch's, else the base's. */
  lookAfter(frame) {
    return frame.adopted?.look ?? frame.look;
  }

  /** The response text of some cells: masks as low lines, nothing after the first end token. */
  text(cells) {
    let text = "";
    for (const cell of cells) {
      const piece = cell.token === null ? "▁" : this.piece(cell.token);
      if (isSpecial(piece)) break;
      text += piece;
    }
    return text.replace(/▁+$/, (masks) => "▁".repeat(Math.min(3, masks.length)));
  }

  /** Where the positions begin that the answer does without, and why it does. */
  get tail() {
    return this.end ? (this.left ??= this.#left()) : {from: this.read, why: "not read"};
  }

  #left() {
    const {cells} = this.last;
    const end = cells.findIndex((cell) => cell.token !== null && isSpecial(this.piece(cell.token)));
    if (end >= 0 && cells.slice(0, end).every((cell) => cell.token !== null)) return {from: end + 1, why: "after the end"};
    return {from: this.written, why: this.end.finish === "cancelled" ? "not reached" : "not needed"};
  }

  /** How many positions of a frame are masked; once the answer is there, of those that it needed. */
  masked(frame) {
    return frame.cells.slice(0, this.end ? this.tail.from : undefined).filter((cell) => cell.token === null).length;
  }

  /** How many tokens of text some cells hold: up to the first end token. */
  nTokens(cells) {
    const end = cells.findIndex((cell) => cell.token !== null && isSpecial(this.piece(cell.token)));
    return cells.slice(0, end < 0 ? cells.length : end + 1).filter((cell) => cell.token !== null).length;
  }
}

/** The candidates of a search: staying masked first. */
function searched(recording, event) {
  const {last, first} = recording;
  const branches = last.branches.slice(last.branches.length - event.token.length);
  const at = event.pivot - first, at2 = event.pivot_2 === undefined ? null : event.pivot_2 - first;
  const stay = {label: "stay masked", isStay: true, p: null, plausibility: event.p_anchor_max, entropy: event.mean_entropy[0],
    score: event.score[0], isChosen: event.chosen === null, branch: null};
  const tried = event.token.map((token, i) => {
    const token2 = event.token_2?.[i] ?? null;
    return {token, label: () => quoted(recording.piece(token)) + (token2 === null ? "" : ` + ${quoted(recording.piece(token2))}`),
      p: event.p[i], plausibility: event.p_anchor[i], entropy: event.mean_entropy[i + 1], score: event.score[i + 1],
      isChosen: event.chosen === i, branch: branches[i] ?? null};
  });
  return {kind: "search", nfe: last.nfe, pivots: at2 === null ? [at] : [at, at2], before: event.entropy_before,
    candidates: [stay, ...tried]};
}

/** The candidates of a choice among branches at different positions. */
function branched(recording, event) {
  const {last, first} = recording;
  const branches = last.branches.slice(last.branches.length - event.token.length);
  const stay = {label: "no branch", isStay: true, entropy: last.entropy, score: event.score_base, isChosen: event.chosen === null,
    branch: null};
  const tried = event.token.map((token, i) => ({token,
    label: () => `${event.pos[i] - first}: ${quoted(recording.piece(token))}`,
    entropy: branches[i]?.entropy, score: event.score[i], isChosen: event.chosen === i, branch: branches[i] ?? null}));
  return {kind: "branches", nfe: last.nfe, pivots: event.pos.map((pos) => pos - first), candidates: [stay, ...tried]};
}

/** A choice that only its commit tells of, or that adopted nothing. */
function adopted(recording, event) {
  const {last, first} = recording;
  const tried = last.branches.map((branch) => ({token: branch.edits[0]?.token,
    label: () => `${branch.edits[0]?.pos}: ${quoted(recording.piece(branch.edits[0]?.token))}`, entropy: branch.entropy,
    isChosen: branch.edits.some((edit) => event && edit.pos === event.pos[0] - first && edit.token === event.token[0]), branch}));
  const stay = {label: "no branch", isStay: true, entropy: last.entropy, isChosen: !event, branch: null};
  return {kind: "branches", nfe: last.nfe, pivots: tried.map((one) => one.branch.edits[0]?.pos), candidates: [stay, ...tried]};
}

const mean = (numbers) => (numbers.length ? numbers.reduce((sum, x) => sum + x, 0) / numbers.length : null);
