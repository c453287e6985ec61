/* The list of rollouts, its filters and its pages. */
const NAMES = [["step", "update"], ["problem", "problem"], ["reward", "reward"], ["reason", "reason"], ["num_tokens", "tokens"]];
const MAX_CHOICES = 300, EXCERPT = 200;

function field(parent, label) {
  const box = add(parent, "label", "", "field");
  add(box, "span", label, "soft");
  return box;
}

function choose(parent, options, value, act) {
  const select = add(parent, "select");
  for (const [key, text] of options) add(select, "option", text).value = key;
  select.value = value;
  select.addEventListener("change", () => act(select.value));
  return select;
}

/* Two numbers, of which either may be empty. */
function addRange(parent, name, text, act) {
  const [low, high] = text.split(".."), box = add(parent, "div", "", "field"), label = labelOf(name);
  add(box, "span", label, "soft");
  const ends = add(box, "div", "", "ends"), inputs = [];
  for (const [end, value] of [["from", low], ["to", high]]) {
    if (end === "to") add(ends, "span", "to", "soft");
    const input = add(ends, "input");
    Object.assign(input, { type: "number", step: "any", value: value ?? "", placeholder: end });
    input.setAttribute("aria-label", `${label} ${end}`);
    input.dataset.filter = `${name} ${end}`;
    inputs.push(input);
  }
  const change = () => act(inputs.some(input => input.value) ? inputs.map(input => input.value).join("..") : "");
  inputs.forEach(input => input.addEventListener("input", change));
}

/* How many rows have each choice of a column, by code; counted once. */
function countsOf(column) {
  if (column.counts) return column.counts;
  const counts = column.counts = new Map();
  for (const code of column.values) counts.set(code, (counts.get(code) ?? 0) + 1);
  return counts;
}

function addChoice(parent, column, value, act) {
  const counts = countsOf(column);
  const codes = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a)).slice(0, MAX_CHOICES);
  const nameOf = code => code < 0 ? MISSING[column.name] ?? "none" : shown(column.choices[code]);
  const options = codes.map(code => [code < 0 ? "-" : column.choices[code], `${nameOf(code)} (${count(counts.get(code))})`]);
  choose(field(parent, labelOf(column.name)), [["", "all"], ...options], value, act).dataset.filter = column.name;
}

/* The fields of all filters; `change` gets what differs from the state. */
function drawFields(state, change) {
  const parent = document.getElementById("fields");
  parent.replaceChildren();
  const set = name => value => change({ filters: { ...current().filters, [name]: value } });
  const named = add(field(parent, "problem"), "input");
  Object.assign(named, { type: "search", value: state.problem, placeholder: "part of its id" });
  named.dataset.filter = "problem";
  named.addEventListener("input", () => change({ problem: named.value }));
  for (const [name, column] of columns) {
    if (NOT_FILTERS.includes(name)) continue;
    if (column.choices) addChoice(parent, column, state.filters[name] ?? "", set(name));
    else addRange(parent, name, state.filters[name] ?? "", set(name));
  }
  const numbers = [...columns.values()].filter(column => !column.choices && !NOT_FILTERS.includes(column.name));
  const orders = numbers.flatMap(({ name }) => [[name, labelOf(name) + ", low first"], ["-" + name, labelOf(name) + ", high first"]]);
  const sorts = [["", "order of the table"], ...orders];
  choose(field(parent, "sort by"), sorts, state.sort, value => change({ sort: value })).dataset.filter = "sort";
  const clear = add(field(parent, "all filters"), "button", "Clear");
  clear.type = "button";
  clear.addEventListener("click", () => { location.hash = "#"; });
}

function drawSummary(state, found) {
  const active = Object.values(state.filters).filter(Boolean).length + Boolean(state.problem) + Boolean(state.sort);
  document.querySelector("#filters summary").textContent = "Filters and order" + (active ? ` (${active} set)` : "");
  const of = found.length === HEAD.rows ? "" : ` of ${count(HEAD.rows)}`;
  const none = HEAD.rows ? `None of ${count(HEAD.rows)} rollouts` : "There are no rollouts yet.";
  const text = found.length ? summaryOf(found).replace(" rollouts", `${of} rollouts`) : none;
  document.getElementById("summary").textContent = text;
}

async function drawRows(state, found) {
  const box = document.createElement("div"), rows = found.slice(PAGE * (state.page - 1), PAGE * state.page);
  const names = add(box, "div", "", "row names");
  for (const [, label] of NAMES) add(names, "span", label, label === "problem" || label === "reason" ? "" : "number");
  add(names, "span", "completion");
  const texts = rows.map(row => addRow(box, row, state));
  document.getElementById("rows").replaceChildren(...box.childNodes);
  await Promise.all(rows.map(async (row, i) => excerpt(texts[i], (await textsOf(row)).completion, state.q, row)));
}

/* A row of the list, a link to its rollout; returns the place of its excerpt. */
function addRow(parent, row, state) {
  const link = addLink(parent, "", { ...state, view: "rollout", id: row }, "row");
  for (const [name, label] of NAMES) {
    const value = name === "problem" ? HEAD.problems[problemOf[row]] : valueOf(name, row), isText = typeof value === "string";
    const cell = add(link, "span", "", isText ? "" : "number");
    add(cell, "span", label + " ", "label");
    cell.append(isText ? shown(value) : number(value));
  }
  return add(link, "span", "…", "excerpt soft");
}

/* The beginning of a text, or what is around the words that were searched. */
function excerpt(node, text, query, row) {
  const at = query ? text.toLowerCase().indexOf(query.toLowerCase()) : -1, from = Math.max(0, at - 60);
  const part = (start, end) => shown(text.slice(start, end)).replace(/\s+/g, " ");
  if (at < 0) {
    const isAsked = query && searchable.problems[problemOf[row]]?.includes(query.toLowerCase());
    node.textContent = (isAsked ? "(in the prompt) " : "") + part(0, EXCERPT);
    return;
  }
  node.textContent = (from ? "… " : "") + part(from, at);
  add(node, "mark", part(at, at + query.length));
  node.append(part(at + query.length, from + EXCERPT));
}

function drawPages(state, found) {
  const box = document.getElementById("pages"), last = Math.max(1, Math.ceil(found.length / PAGE));
  box.replaceChildren();
  if (last === 1) return;
  const page = Math.min(state.page, last);
  if (page > 1) { addLink(box, "First", { ...state, page: 1 }); addLink(box, "Previous page", { ...state, page: page - 1 }); }
  add(box, "span", `page ${count(page)} of ${count(last)}`, "soft");
  if (page < last) { addLink(box, "Next page", { ...state, page: page + 1 }); addLink(box, "Last", { ...state, page: last }); }
}
