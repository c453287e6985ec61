/* One rollout, one group side by side, one problem over the run. */
const MAX_TEXT = 20000;

function rowsWhere(test) {
  const rows = [];
  for (let row = 0; row < HEAD.rows; row++) if (test(row)) rows.push(row);
  return rows;
}

function groupRows(group) { const values = columns.get("group").values; return rowsWhere(row => values[row] === group); }

/* The facts of a row that the index has, as pairs of name and text. */
function factsOf(row) {
  const facts = [];
  for (const [name, column] of columns) {
    if (["group", "last_version", "sample"].includes(name) || column.part) continue;
    const value = valueOf(name, row);
    const ofNumber = name === "version" ? versionsText : () => Number.isNaN(value) ? "" : number(value);
    const text = column.choices ? value || MISSING[name] || "" : ofNumber(row);
    if (text) facts.push([labelOf(name), shown(text)]);
  }
  return facts;
}

function versionsText(row) {
  const [first, last] = [valueOf("version", row), valueOf("last_version", row)];
  if (Number.isNaN(first)) return "";
  return first === last ? String(first) : first + " to " + last;
}

function partsText(row) {
  const parts = [...columns.values()].filter(column => column.part && !Number.isNaN(column.values[row]));
  return parts.map(column => partName(column.name) + " " + number(column.values[row])).join(" + ");
}

function addPrompt(parent, problem) {
  add(parent, "h3", "Prompt");
  addText(parent, problem.prompt, "prompt");
  if (problem.answer) { const line = add(parent, "p", "Ground truth: "); add(line, "code", shown(problem.answer.slice(0, MAX_TEXT))); }
}

/* A text, of a long one its beginning, and a button for the rest. */
function addText(parent, text, className = "") {
  const pre = add(parent, "pre", shown(text.slice(0, MAX_TEXT)), className);
  const more = text.length - MAX_TEXT;
  if (more > 0) addMore(parent, `Show ${count(more)} more characters`, () => { pre.textContent = shown(text); });
}

function addTurns(parent, turns) {
  for (const turn of turns) {
    const box = add(parent, "div", "", turn.role === "assistant" ? "turn own" : "turn given");
    add(box, "b", shown(turn.role));
    addText(box, turn.content);
  }
}

/* The completion as text, as turns, or as coloured tokens. */
async function addCompletion(parent, row, texts, colour, tell) {
  if (hasColouring(colour) && await addTokens(parent, row, colour, tell)) return;
  const turns = turnsOf(texts.messages);
  if (turns.length) addTurns(parent, turns); else addText(parent, texts.completion);
}

/* The choice of colours, their key, and the line about a token; returns the function that fills this line. */
function addColours(parent, state, rows) {
  const box = add(parent, "div", "", "colours");
  add(box, "span", "Colour tokens by", "soft");
  const offered = ["", ...Object.keys(COLOURINGS).filter(hasColouring)];
  for (const key of offered) {
    const link = addLink(box, key ? COLOURINGS[key].name : "nothing", { ...state, colour: key });
    if (key === (hasColouring(state.colour) ? state.colour : "")) link.setAttribute("aria-current", "true");
  }
  const missing = Object.keys(COLOURINGS).filter(key => !hasColouring(key));
  const without = "the tokens of these completions are not stored, so none can be coloured";
  const text = HEAD.hasTokens ? missing.map(key => COLOURINGS[key].missing).join("; ") : without;
  if (text) add(parent, "p", text[0].toUpperCase() + text.slice(1) + ".", "soft");
  if (!hasColouring(state.colour)) return null;
  addKey(parent, state.colour, rows);
  const told = add(parent, "p", "Point at a token, tap it, or use the arrow keys.", "told");
  return facts => { told.textContent = facts; };
}

async function showRollout(view, state, found) {
  const row = state.id;
  if (!(Number.isInteger(row) && row >= 0 && row < HEAD.rows)) return void add(view, "p", "This page has no such rollout.", "warn");
  const group = valueOf("group", row), problem = problemOf[row], place = found.indexOf(row);
  const texts = await textsOf(row), asked = await textsOfProblem(problem);
  addSteps(view, state, found, place);
  add(view, "h2", `Rollout ${count(row + 1)}`);
  const links = add(view, "p", "", "steps");
  addLink(links, `Group ${group} (${groupRows(group).length} completions)`, { ...state, view: "group", id: group });
  addLink(links, "Problem " + shown(HEAD.problems[problem]), { ...state, view: "problem", id: problem });
  addReward(view, row);
  addFacts(view, factsOf(row));
  if (texts.extracted) { const line = add(view, "p", "Extracted answer: "); add(line, "code", shown(texts.extracted.slice(0, MAX_TEXT))); }
  if (texts.detail) add(view, "p", "Detail of the verdict: " + shown(texts.detail.slice(0, MAX_TEXT)));
  addPrompt(view, asked);
  add(view, "h3", "Completion");
  const tell = addColours(view, state, [row]);
  await addCompletion(view, row, texts, state.colour, tell);
}

function addReward(parent, row) {
  const reward = valueOf("reward", row), parts = partsText(row), line = add(parent, "p");
  if (!Number.isNaN(reward)) add(line, "b", "Reward " + number(reward));
  if (parts) line.append((Number.isNaN(reward) ? "" : ": ") + shown(parts));
}

function addFacts(parent, facts) {
  const list = add(parent, "dl");
  for (const [name, text] of facts) { const box = add(list, "div"); add(box, "dt", name); add(box, "dd", text); }
}

/* Links to the rollouts before and after one among those that the filters let through. */
function addSteps(parent, state, found, place) {
  const box = add(parent, "nav", "", "steps");
  box.setAttribute("aria-label", "Rollouts");
  addLink(box, "← All rollouts", { ...state, view: "" });
  if (place > 0) addLink(box, "Previous", { ...state, id: found[place - 1] });
  if (place >= 0 && place + 1 < found.length) addLink(box, "Next", { ...state, id: found[place + 1] });
  add(box, "span", place >= 0 ? `${count(place + 1)} of ${count(found.length)}` : "not among the filtered rollouts", "soft");
}

async function showGroup(view, state) {
  const rows = groupRows(state.id);
  addSteps(view, state, rows, -2);
  view.querySelector(".steps span").remove();
  if (!rows.length) return void add(view, "p", "This page has no such group.", "warn");
  const first = rows[0], problem = problemOf[first], step = valueOf("step", first);
  add(view, "h2", `Group ${state.id}` + (Number.isNaN(step) ? "" : `, update ${step}`));
  const links = add(view, "p", "", "steps");
  addLink(links, "Problem " + shown(HEAD.problems[problem]) + " over the run", { ...state, view: "problem", id: problem });
  const dropped = valueOf("dropped", first), fate = dropped ? "; dropped: " + shown(dropped) : "; trained";
  add(links, "span", summaryOf(rows) + (columns.has("dropped") ? fate : ""), "soft");
  addPrompt(view, await textsOfProblem(problem));
  const tell = addColours(view, state, rows), side = add(view, "div", "", "side");
  for (const row of rows) await addCard(side, row, state, tell);
}

async function addCard(parent, row, state, tell) {
  const card = add(parent, "article", "", "card"), reason = valueOf("reason", row), advantage = valueOf("advantage", row);
  const head = add(card, "p");
  addLink(head, `Rollout ${count(row + 1)}`, { ...state, view: "rollout", id: row });
  const facts = [reason, `${number(valueOf("num_tokens", row))} tokens`, Number.isNaN(advantage) ? "" : "advantage " + number(advantage)];
  head.append(": " + shown(facts.filter(Boolean).join(", ")));
  addReward(card, row);
  await addCompletion(card, row, await textsOf(row), state.colour, tell);
}

function summaryOf(rows) {
  const facts = [`${count(rows.length)} rollouts`];
  if (columns.has("reward")) facts.push("mean reward " + number(meanOf("reward", rows)));
  if (columns.has("correct")) facts.push("correct " + percent(countOf("correct", "true", rows) / rows.length));
  if (columns.has("num_tokens")) facts.push("mean length " + number(meanOf("num_tokens", rows)) + " tokens");
  return facts.join(", ");
}

async function showProblem(view, state) {
  const rows = rowsWhere(row => problemOf[row] === state.id);
  addSteps(view, state, rows, -2);
  view.querySelector(".steps span").remove();
  if (!rows.length) return void add(view, "p", "This page has no such problem.", "warn");
  const asked = await textsOfProblem(state.id);
  add(view, "h2", "Problem " + shown(asked.id || HEAD.problems[state.id]));
  add(view, "p", summaryOf(rows), "soft");
  addPrompt(view, asked);
  const groups = groupedBy(rows, row => valueOf("group", row));
  const points = [...groups].map(([group, members]) => pointOf(group, members, state));
  add(view, "h3", "Over the run");
  drawHistory(view, points, "mean reward");
  addGroups(view, points);
}

function groupedBy(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    if (!groups.has(key(row))) groups.set(key(row), []);
    groups.get(key(row)).push(row);
  }
  return groups;
}

function pointOf(group, members, state) {
  const step = valueOf("step", members[0]), reward = meanOf("reward", members);
  const label = (Number.isNaN(step) ? "" : `update ${step}: `) + summaryOf(members);
  return { x: step, y: reward, label, group, dropped: valueOf("dropped", members[0]), state: { ...state, view: "group", id: group } };
}

function addGroups(parent, points) {
  const list = add(parent, "ul", "", "facts");
  for (const point of points) {
    const line = add(list, "li");
    addLink(line, "Group " + point.group, point.state);
    line.append(", " + point.label + (point.dropped ? "; dropped: " + shown(point.dropped) : ""));
  }
}
