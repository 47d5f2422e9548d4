// The start of a self-contained file: the runs stand in the page as data.

import {facts, names} from "./facts.js";
import {show} from "./show.js";
import {themeButton} from "./theme.js";
import {Recording} from "./trace.js";

const runs = JSON.parse(document.getElementById("runs").textContent);
const recordings = runs.map(({events, ...known}) => Recording.of(events, known));
themeButton(document.getElementById("theme"));
if (recordings.length) {
  const view = show(document.getElementById("view"), recordings);
  document.addEventListener("keydown", (event) => view.onkey(event));
  const title = names(recordings).join(" vs ");
  document.getElementById("facts").textContent = [title, ...facts(recordings).shared].join(" · ");
  document.title = `Ripple · ${title}`;
}
