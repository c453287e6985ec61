/* Which rows are shown, in which order: the state of the page, which is in its address. */
const PAGE = 50, FILTER = "f.";
const NOT_FILTERS = ["group", "sample", "last_version", "temperature"];
const LABELS = {
  step: "update", num_tokens: "tokens", version: "weight version", finish: "ended by", dropped: "trained or dropped", kind: "kind",
  correct: "correct", languages: "languages", language: "language of the problem",
};
const MISSING = { dropped: "trained" };

function partName(name) { return name.replace(/^(reward_|parts\.)/, ""); }
function labelOf(name) { return LABELS[name] ?? (columns.get(name)?.part ? "reward: " + partName(name) : name); }

function parseState(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, "")), filters = {};
  for (const [key, value] of given) if (key.startsWith(FILTER)) filters[key.slice(FILTER.length)] = value;
  return {
    view: given.get("view") ?? "", id: Number(given.get("id") ?? 0), q: given.get("q") ?? "", problem: given.get("problem") ?? "",
    sort: given.get("sort") ?? "", page: Math.max(1, Number(given.get("page")) || 1), colour: given.get("colour") ?? "", filters,
  };
}

/* The address of a state; what is empty or the default is left out. */
function hashOf(state) {
  const shown = new URLSearchParams();
  if (state.view) { shown.set("view", state.view); shown.set("id", state.id); }
  for (const key of ["q", "problem", "sort", "colour"]) if (state[key]) shown.set(key, state[key]);
  if (state.page > 1) shown.set("page", state.page);
  for (const [name, value] of Object.entries(state.filters)) if (value) shown.set(FILTER + name, value);
  return "#" + shown;
}

/* The ends of a filter such as "0.5..1"; an end that is left out is open. */
function endsOf(text) {
  const [low, high] = text.split("..");
  return [low ? Number(low) : -Infinity, high ? Number(high) : Infinity];
}

/* A test of rows for each filter. A row belongs to all weight versions that it was sampled with. */
function testsOf(state) {
  const tests = [];
  for (const [name, text] of Object.entries(state.filters)) {
    const column = columns.get(name);
    if (!column || !text) continue;
    if (column.choices) {
      const wanted = text === "-" ? -1 : column.choices.indexOf(text);
      tests.push(row => column.values[row] === wanted);
    } else {
      const [low, high] = endsOf(text), first = column.values;
      const last = name === "version" ? columns.get("last_version").values : first;
      tests.push(row => last[row] >= low && first[row] <= high);
    }
  }
  if (state.problem) tests.push(problemTest(state.problem));
  return tests;
}

function problemTest(text) {
  const wanted = text.toLowerCase(), has = HEAD.problems.map(name => name.toLowerCase().includes(wanted));
  return row => has[problemOf[row]];
}

/* The rows that pass all filters, sorted. */
async function matching(state) {
  const tests = testsOf(state);
  if (state.q) tests.push(await searchTest(state.q));
  const rows = [];
  for (let row = 0; row < HEAD.rows; row++) if (tests.every(test => test(row))) rows.push(row);
  return sorted(rows, state.sort);
}

function sorted(rows, sort) {
  const falls = sort.startsWith("-"), column = columns.get(sort.replace("-", ""));
  if (!column || column.choices) return rows;
  const values = column.values, sign = falls ? -1 : 1;
  return rows.sort((a, b) => {
    const missing = Number.isNaN(values[a]) - Number.isNaN(values[b]);
    return missing || sign * (values[a] - values[b]) || a - b;
  });
}

/* Texts in lower case, by row and by problem; made once, in the background. */
const searchable = { rows: [], problems: [], ready: null };

function readSearchable() { return searchable.ready ??= fillSearchable(); }

async function fillSearchable() {
  for (let number = 0; number < HEAD.problemChunks.length; number++) {
    const chunk = await problemChunk(number);
    for (let i = 0; i < HEAD.problemChunks[number]; i++) {
      searchable.problems.push((chunk.prompt.at(i) + "\n" + chunk.answer.at(i)).toLowerCase());
    }
    await pause(0);
  }
  for (let number = 0; number < HEAD.chunks.length; number++) {
    const chunk = await textChunk(number);
    for (let i = 0; i < HEAD.chunks[number]; i++) searchable.rows.push(searchText(chunk, i).toLowerCase());
    await pause(0);
  }
}

function searchText(chunk, i) {
  const turns = turnsOf(chunk.messages.at(i)).map(turn => turn.content);
  return [chunk.completion.at(i), chunk.extracted.at(i), chunk.detail.at(i), ...turns].join("\n");
}

async function searchTest(query) {
  await readSearchable();
  const wanted = query.toLowerCase(), inProblem = searchable.problems.map(text => text.includes(wanted));
  return row => inProblem[problemOf[row]] || searchable.rows[row].includes(wanted);
}

/* The turns of a conversation, from JSON; none if it is not one. */
function turnsOf(json) {
  if (!json) return [];
  try {
    return JSON.parse(json).map(turn => ({ role: String(turn.role ?? ""), content: contentOf(turn.content) }));
  } catch {
    return [];
  }
}
function contentOf(content) { return typeof content === "string" ? content : content == null ? "" : JSON.stringify(content); }
