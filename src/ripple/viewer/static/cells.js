// What each cell of a canvas shows: the states of a frame's positions, and each position in words.

import {chance, clock, fixed, isSpecial, quoted, shift, visible, warmth} from "./dom.js";
import {CAUSES} from "./trace.js";

/** The states of a frame's cells. `preview` is a branch to show instead of what was decided; `guesses` writes the model's guesses. */
export function states(recording, frame, {mode = "cause", preview = null, guesses = false, isLive = false} = {}) {
  return preview ? previewed(recording, frame, preview) : decided(recording, frame, mode, guesses, isLive);
}

/** What the model said of each position that it read, before the frame's end; before the first forward, what it will say. */
export function readings(recording, frame) {
  return frame.nfe ? recording.lookAfter(frame) : recording.frames[1]?.look ?? new Map();
}

function decided(recording, frame, mode, guesses, isLive) {
  const final = isLive ? null : recording.last.cells;
  const rows = readings(recording, frame);
  return frame.cells.map((cell, i) => {
    const row = rows.get(i);
    const isFresh = cell.nfe === frame.nfe && frame.nfe > 0;
    const tint = mode === "ripple" ? rippled(frame, i) : mode === "entropy" ? warmed(cell, row) : {};
    if (cell.token === null) {
      const guess = guesses && row ? visible(recording.piece(row.token)) : null;
      const text = guess ?? placeholder(recording, final?.[i]);
      return {kind: `masked${row ? "" : " far"}${isFresh ? " fresh" : ""}${guess === null ? "" : " guess"}${text ? "" : " blank"} ${mode}`,
        text, isHidden: true, cause: cell.cause, ...tint};
    }
    const piece = recording.piece(cell.token);
    const isPivot = cell.cause === "pivot" || cell.cause === "branch";
    return {kind: `token${isFresh ? " fresh" : ""}${isSpecial(piece) ? " special" : ""}${isBlamed(recording, cell) ? " blamed" : ""} ${mode}`,
      text: shown(piece), cause: cell.cause, pick: isPivot ? String(cell.nfe) : null, ...tint};
  });
}

/** The states of all cells as a branch would have them: its edits, and its guesses for the rest. */
function previewed(recording, frame, branch) {
  const before = recording.frames[frame.nfe - 1].cells;
  const edits = new Map(branch.edits.map((edit) => [edit.pos, edit.token]));
  return before.map((cell, i) => {
    const guess = branch.look.get(i);
    if (edits.has(i)) return {kind: "token edit cause", text: visible(recording.piece(edits.get(i))), cause: "pivot"};
    if (guess) {
      const change = changed(guess.entropy - frame.look.get(i).entropy);
      return {kind: `masked guess ripple${branch.changed.has(i) ? " other" : ""}`, text: shown(recording.piece(guess.token)), ...change};
    }
    const blank = placeholder(recording, recording.last.cells[i]);
    if (cell.token === null) return {kind: `masked far ripple${blank ? "" : " blank"}`, text: blank, isHidden: true};
    const piece = recording.piece(cell.token);
    return {kind: `token plain${isSpecial(piece) ? " special" : ""}`, text: shown(piece)};
  });
}

const shown = (piece) => (isSpecial(piece) ? "∎" : visible(piece));
const isBlamed = (recording, cell) => recording.blame !== null && cell.commit === recording.blame;

/** What stands invisibly in a masked cell, so that text does not jump when it is committed. */
const placeholder = (recording, final) => (final && final.token !== null ? shown(recording.piece(final.token)) : "");

function warmed(cell, row) {
  const entropy = cell.token === null ? row?.entropy : cell.entropy;
  return entropy === undefined || entropy === null ? {} : {heat: warmth(entropy).toFixed(2)};
}

/** How the adopted branch of a frame changed a position. */
function rippled(frame, i) {
  const before = frame.look.get(i), after = frame.adopted?.look.get(i);
  return before && after ? changed(after.entropy - before.entropy) : {};
}

function changed(nats) {
  const step = shift(nats);
  return {heat: Math.abs(step).toFixed(2), change: step < 0 ? "surer" : "less-sure"};
}

/** One position by its name. */
export function named(recording, frame, i) {
  const cell = frame.cells[i];
  if (cell.token === null) return `masked, position ${i}`;
  return `${quoted(recording.piece(cell.token))}, position ${i}${cell.cause === "pivot" || cell.cause === "branch" ? `, ${cell.cause}` : ""}`;
}

/** One position in words. */
export function described(recording, frame, i) {
  const cell = frame.cells[i];
  if (cell.token !== null) {
    const blamed = isBlamed(recording, cell) ? ", the commit that cost the answer" : "";
    const entropy = cell.entropy === null ? "" : ` · entropy ${fixed(cell.entropy)} nats`;
    return `Position ${i} · ${quoted(recording.piece(cell.token))} · ${cell.cause}: ${CAUSES[cell.cause] ?? "of its own"}${blamed}`
      + ` · forward ${cell.nfe}, ${clock(recording.frames[cell.nfe]?.t ?? 0)} · p ${chance(cell.p)}${entropy}`;
  }
  const row = recording.lookAfter(frame).get(i);
  const state = cell.cause === "revoked" ? "masked again" : "masked";
  if (!row) return `Position ${i} · ${state}, not read by this forward`;
  return `Position ${i} · ${state} · most likely ${quoted(recording.piece(row.token))}`
    + `${row.p === undefined ? "" : ` (p ${chance(row.p)})`} · entropy ${fixed(row.entropy)} nats`;
}
