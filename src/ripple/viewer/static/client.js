// The server's interface: what it offers, and a run as it happens.

/** What the server said where it did not do as it was asked. */
export class Refused extends Error {}

/** Raise what broke a connection as a sentence; a run that somebody stopped stays one. */
function lost(error, sentence) {
  throw error.name === "AbortError" ? error : new Refused(sentence);
}

/** Ask the server for something; a refusal is raised with the server's own sentence. */
async function ask(path, how = {}) {
  const headers = how.body ? {"Content-Type": "application/json"} : {};
  const response = await fetch(path, {headers, ...how}).catch((error) => lost(error, "The server cannot be reached."));
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  const wait = response.headers.get("Retry-After");
  throw new Refused((told?.error?.message ?? `The server answered ${response.status}.`) + (wait ? ` Try again in ${wait} s.` : ""));
}

/** What the server offers: model, decoders, caches, options, examples. */
export const offers = async () => (await ask("/playground")).json();

/** The empty page that runs are put into. */
export const emptyPage = async () => (await ask("/playground/page")).text();

/** Decode; yields frames of the canvas, `{events, pieces}`, as they come. */
export async function* decode(path, body, signal) {
  const response = await ask(path, {signal, method: "POST", body: JSON.stringify(body)});
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read().catch((error) => lost(error, "The connection to the server broke."));
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const chunk = JSON.parse(line.slice(6));
      if (chunk.error) throw new Refused(chunk.error.message);
      if (chunk.ripple?.events) yield chunk.ripple;
    }
  }
}
