/* The page follows its address: each view and each set of filters has one, which can be copied. */
let asked = 0;

function current() { return parseState(location.hash); }

/* Changes filters without a new entry in the browser's history, so that Back leaves the list. */
function change(parts) {
  history.replaceState(null, "", hashOf({ ...current(), page: 1, ...parts }));
  render(false);
}

/* Draws what the address says; `fields` too, unless they are just being typed into. */
async function render(fields) {
  const state = current(), turn = ++asked, text = document.getElementById("text");
  if (fields) { drawFields(state, change); text.value = state.q; }
  if (state.q && !state.view) document.getElementById("summary").textContent = "Searching …";
  const found = await matching(state);
  if (turn !== asked) return;  // the address has changed meanwhile
  document.getElementById("list").hidden = Boolean(state.view);
  document.getElementById("view").hidden = !state.view;
  if (state.view) return showView(state, found, turn);
  drawSummary(state, found);
  drawPages(state, found);
  await drawRows(state, found);
}

async function showView(state, found, turn) {
  const view = document.createElement("section"), show = { rollout: showRollout, group: showGroup, problem: showProblem }[state.view];
  if (show) await show(view, state, found); else add(view, "p", "This page has no such view.", "warn");
  if (turn !== asked) return;
  view.id = "view";
  document.getElementById("view").replaceWith(view);
}

function fail(error) { add(document.querySelector("header"), "p", "⚠ " + (error?.message ?? error), "warn"); }

async function start() {
  const parts = [`${count(HEAD.rows)} rollouts of ${count(HEAD.problems.length)} problems.`];
  document.getElementById("facts").prepend(parts.join(" ") + " ");
  await loadIndex();
  const state = current();
  document.getElementById("filters").open = innerWidth > 760 || Object.keys(state.filters).length > 0;
  const text = document.getElementById("text");
  text.addEventListener("input", () => change({ q: text.value }));
  document.getElementById("search").addEventListener("submit", event => event.preventDefault());
  addEventListener("hashchange", () => { scrollTo(0, 0); render(true).catch(fail); });
  await render(true);
  document.documentElement.dataset.shown = Math.round(performance.now());
  await pause(200);
  await readSearchable();
  document.documentElement.dataset.searchable = Math.round(performance.now());
}

addEventListener("unhandledrejection", event => fail(event.reason));
if (window.DecompressionStream) start().catch(fail); else fail("this browser is too old for the page: it needs one of 2023 or later");
