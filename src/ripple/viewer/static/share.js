// A run as a file: a page that opens without a server, or its trace.

const SLOT = '<script type="application/json" id="runs">[]</script>';

/** Return the page with recordings in it. */
export function filledPage(empty, recordings) {
  const runs = recordings.map(({title, model, blame, shared, pieces, events}) => ({name: title, model, blame, shared, pieces, events}));
  const short = (name, value) => (typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(5)) : value);
  const data = JSON.stringify(runs, short).replaceAll("<", "\\u003c");
  return empty.replace(SLOT, () => SLOT.replace("[]", () => data));
}

/** Return a trace as docs/trace.md has it. */
export const asLines = (recording) => recording.events.map((event) => `${JSON.stringify(event)}\n`).join("");

/** Hand a file to the reader. */
export function download(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], {type}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** A file name of what was run. */
export const fileName = (recordings, ending) =>
  `ripple-${recordings.map((one) => one.title.replace(/[^\w.=-]+/g, "-")).join("-vs-").slice(0, 80)}.${ending}`;
