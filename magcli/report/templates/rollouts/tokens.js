/* The tokens of a completion, coloured by one of their values. */
const MAX_TOKENS = 4000;
const COLOURINGS = {
  logprobs: { name: "log-prob", missing: "no log-probs are stored here", colour: logprobColour },
  ratios: { name: "importance ratio", missing: "importance ratios are not stored here (they would be in a column ratios)", colour: ratioColour },
  advantage: { name: "advantage", missing: "no advantages are stored here", colour: advantageColour },
  version: { name: "weight version", missing: "no weight versions are stored here", colour: versionColour },
};

function hasColouring(key) {
  if (!HEAD.hasTokens) return false;
  return key === "advantage" || key === "version" ? columns.has(key) : HEAD.hasValues.includes(key);
}

function mixed(colour, share) { return `color-mix(in srgb, var(--c${colour}) ${Math.round(60 * Math.min(1, share))}%, transparent)`; }
function logprobColour(value) { return mixed(1, -value / 6); }
function ratioColour(value) { return mixed(value < 1 ? 1 : 0, Math.abs(Math.log2(value))); }
function advantageColour(value) { return mixed(value < 0 ? 4 : 2, Math.abs(value)); }
function versionColour(value) { return mixed(value % 8, .75); }

/* The value of each token under a colouring; NaN for tokens that the environment wrote. */
function valuesOf(tokens, key, row) {
  const isGiven = new Uint8Array(tokens.codes.length);
  for (const [start, end] of tokens.given) isGiven.fill(1, start, end);
  const stored = i => tokens.values[key]?.[i] ?? NaN;
  const valueAt = { version: versionAt(tokens.versions), advantage: () => valueOf("advantage", row) }[key] ?? stored;
  return tokens.codes.map((_, i) => isGiven[i] ? NaN : valueAt(i));
}

function versionAt(spans) {
  return i => spans.reduce((found, [start, version]) => start <= i ? version : found, NaN);
}

/* Texts of tokens; a character in several tokens is shown with its last one. */
function pieceTexts(tokens) {
  const decoder = new TextDecoder();
  return tokens.pieces.map((piece, i) => decoder.decode(piece, { stream: i + 1 < tokens.pieces.length }));
}

/* Blocks of tokens: those of the model and those of the environment in turn. */
function blocksOf(tokens) {
  const blocks = [];
  let at = 0;
  for (const [start, end] of tokens.given) {
    if (start > at) blocks.push({ start: at, end: start, given: false });
    blocks.push({ start, end, given: true });
    at = end;
  }
  if (at < tokens.codes.length) blocks.push({ start: at, end: tokens.codes.length, given: false });
  return blocks;
}

/* Adds the tokens of a row; `tell` gets the facts of the one that is pointed at. Returns whether it has any. */
async function addTokens(parent, row, key, tell) {
  const tokens = await tokensOf(row);
  if (!tokens || !tokens.codes.length) {
    add(parent, "p", "This completion is stored without tokens.", "warn");
    return false;
  }
  const values = valuesOf(tokens, key, row), texts = pieceTexts(tokens);
  if (values.every(Number.isNaN)) add(parent, "p", "For this completion, " + COLOURINGS[key].missing + ".", "warn");
  const spans = [], body = add(parent, "div", "", "tokens");
  for (const block of blocksOf(tokens)) addBlock(body, block, { key, values, texts, spans, isOnly: !tokens.given.length });
  follow(body, spans, i => tell(tokenFacts(tokens, texts, row, i)));
  return true;
}

function addBlock(body, block, { key, values, texts, spans, isOnly }) {
  const box = isOnly ? body : add(body, "div", "", block.given ? "turn given" : "turn own");
  if (!isOnly) add(box, "b", block.given ? "environment" : "model");
  const pre = add(box, "pre");
  const show = (from, to) => {
    for (let i = from; i < to; i++) {
      spans[i] = add(pre, "span", shown(texts[i]).replace(/\n/g, "↵\n"));
      spans[i].dataset.token = i;
      if (!Number.isNaN(values[i])) spans[i].style.backgroundColor = COLOURINGS[key].colour(values[i]);
    }
  };
  const first = Math.min(block.end, block.start + MAX_TOKENS);
  show(block.start, first);
  if (first < block.end) addMore(box, `Show ${count(block.end - first)} more tokens`, () => show(first, block.end));
}

/* A button that does something once. */
function addMore(parent, text, act) {
  const button = add(parent, "button", text);
  button.type = "button";
  button.addEventListener("click", () => { button.remove(); act(); });
}

function tokenFacts(tokens, texts, row, i) {
  const given = tokens.given.some(([start, end]) => start <= i && i < end);
  const logprob = tokens.values.logprobs?.[i] ?? NaN;
  const facts = [`token ${count(i + 1)} of ${count(tokens.codes.length)} ${JSON.stringify(shown(texts[i]))}`];
  if (given) return facts[0] + ", written by the environment";
  if (!Number.isNaN(logprob)) facts.push(`log-prob ${number(logprob)} (probability ${number(Math.exp(logprob))})`);
  if (tokens.values.ratios) facts.push(`ratio ${number(tokens.values.ratios[i])}`);
  const advantage = valueOf("advantage", row);
  if (!Number.isNaN(advantage)) facts.push(`advantage ${number(advantage)}`);
  if (tokens.versions.length) facts.push(`weight version ${versionAt(tokens.versions)(i)}`);
  return facts.join(", ");
}

/* What the colours mean; of versions, those that the rows were sampled with. */
function addKey(parent, key, rows) {
  const box = add(parent, "div", "", "scale-key"), colouring = COLOURINGS[key];
  const marks = { logprobs: [0, -1, -2, -4, -6], ratios: [.5, .8, 1, 1.25, 2], advantage: [-1, -.5, 0, .5, 1] }[key];
  add(box, "b", colouring.name);
  for (const mark of marks ?? versionsOf(rows)) {
    add(box, "span", number(mark)).style.backgroundColor = colouring.colour(mark);
  }
}

function versionsOf(rows) {
  const versions = new Set();
  for (const row of rows) {
    const last = valueOf("last_version", row);
    for (let version = valueOf("version", row); version <= last; version++) versions.add(version);
  }
  return [...versions].sort((a, b) => a - b);
}

/* Calls `tell` with the token that is pointed at, tapped, or reached by the arrow keys. */
function follow(body, spans, tell) {
  let at = -1;
  const go = i => {
    if (!spans[i]) return;
    spans[at]?.classList.remove("at");
    spans[at = i].classList.add("at");
    tell(i);
  };
  const point = event => { const token = event.target.dataset?.token; if (token !== undefined) go(Number(token)); };
  body.addEventListener("pointerover", point);
  body.addEventListener("click", point);
  body.tabIndex = 0;
  body.setAttribute("role", "group");
  body.setAttribute("aria-label", "Tokens");
  body.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { event.preventDefault(); go(at + step); }
  });
}
