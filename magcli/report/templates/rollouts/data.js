"use strict";
/* The rows of the page: an index that is decoded at once, and chunks of texts and tokens that are when needed. */
const HEAD = JSON.parse(document.getElementById("head").textContent);
const MAX_TOKEN_CHUNKS = 8;

function pause(ms) { return new Promise(resolve => setTimeout(resolve, ms)); }

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  return Uint8Array.from(letters, letter => letter.charCodeAt(0));
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/* The element of a chunk, once the browser has read it to its end. */
async function elementOf(id) {
  for (;;) {
    const node = document.getElementById(id), isRead = document.readyState !== "loading";
    if (node && (node.nextSibling || isRead)) return node;
    if (isRead) throw new Error("this page is incomplete: copy it again (" + id + " is missing)");
    await pause(10);
  }
}

/* The parts of a chunk, as bytes. Its element goes, so that the text is not kept twice, unless it may be read again. */
async function partsOf(id, keep) {
  const node = await elementOf(id), bytes = await inflate(fromBase64(node.textContent));
  if (!keep) node.remove();
  const view = new DataView(bytes.buffer), count = view.getUint32(0, true), parts = [];
  let at = 4 + 4 * count;
  for (let part = 0; part < count; part++) {
    const length = view.getUint32(4 + 4 * part, true);
    parts.push(bytes.subarray(at, at + length));
    at += length;
  }
  return parts;
}

function uints(bytes) { return new Uint32Array(bytes.slice().buffer); }
function ints(bytes) { return new Int32Array(bytes.slice().buffer); }
function floats(bytes) { return new Float32Array(bytes.slice().buffer); }

/* Where each of several runs of these lengths begins, and where the last one ends. */
function startsOf(lengths) {
  const starts = new Float64Array(lengths.length + 1);
  lengths.forEach((length, i) => { starts[i + 1] = starts[i] + length; });
  return starts;
}

function bytesColumn(lengths, bytes) {
  const starts = startsOf(uints(lengths));
  return { length: starts.length - 1, at: i => bytes.subarray(starts[i], starts[i + 1]) };
}

function textColumn(lengths, bytes) {
  const column = bytesColumn(lengths, bytes), decoder = new TextDecoder();
  return { length: column.length, at: i => decoder.decode(column.at(i)) };
}

/* Which of several runs has a position, and where in it. */
function placeIn(starts, position) {
  let low = 0, high = starts.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= position) low = middle; else high = middle - 1;
  }
  return [low, position - starts[low]];
}

const columns = new Map(), chunkStarts = startsOf(HEAD.chunks), problemStarts = startsOf(HEAD.problemChunks);
let problemOf = new Int32Array(0);

async function loadIndex() {
  const parts = await partsOf("index");
  problemOf = ints(parts[0]);
  HEAD.columns.forEach((column, i) => {
    columns.set(column.name, { ...column, values: column.choices ? ints(parts[i + 1]) : floats(parts[i + 1]) });
  });
}

/* A number or a choice of a row; NaN or "" if it has none. */
function valueOf(name, row) {
  const column = columns.get(name);
  if (!column) return NaN;
  return column.choices ? column.choices[column.values[row]] ?? "" : column.values[row];
}

const textChunks = new Map(), tokenChunks = new Map(), problemChunks = new Map();

function cached(chunks, number, load) {
  if (!chunks.has(number)) chunks.set(number, load(number));
  return chunks.get(number);
}

async function loadTexts(number) {
  const parts = await partsOf("texts-" + number), chunk = {};
  HEAD.texts.forEach((name, i) => { chunk[name] = textColumn(parts[2 * i], parts[2 * i + 1]); });
  return chunk;
}
function textChunk(number) { return cached(textChunks, number, loadTexts); }

/* The texts of a row: completion, extracted, detail, messages. */
async function textsOf(row) {
  const [number, place] = placeIn(chunkStarts, row), chunk = await textChunk(number);
  return Object.fromEntries(HEAD.texts.map(name => [name, chunk[name].at(place)]));
}

async function loadProblems(number) {
  const parts = await partsOf("problems-" + number);
  const [id, prompt, answer] = [0, 2, 4].map(i => textColumn(parts[i], parts[i + 1]));
  return { id, prompt, answer };
}
function problemChunk(number) { return cached(problemChunks, number, loadProblems); }

/* The id, prompt and answer of a problem. */
async function textsOfProblem(problem) {
  const [number, place] = placeIn(problemStarts, problem), chunk = await problemChunk(number);
  return { id: chunk.id.at(place), prompt: chunk.prompt.at(place), answer: chunk.answer.at(place) };
}

/* A number of two bytes as IEEE 754 half precision. */
function halfFloat(low, high) {
  const sign = high & 128 ? -1 : 1, exponent = (high >> 2) & 31, fraction = ((high & 3) << 8) | low;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024));
}

function pairsColumn(counts, firsts, seconds) {
  const starts = startsOf(uints(counts)), first = ints(firsts), second = ints(seconds);
  return row => {
    const pairs = [];
    for (let i = starts[row]; i < starts[row + 1]; i++) pairs.push([first[i], second[i]]);
    return pairs;
  };
}

async function loadTokens(number) {
  if (tokenChunks.size >= MAX_TOKEN_CHUNKS) tokenChunks.delete(tokenChunks.keys().next().value);
  const parts = await partsOf("tokens-" + number, true), values = {};
  HEAD.tokenValues.forEach((name, i) => { values[name] = parts.slice(4 + 2 * i, 6 + 2 * i); });
  const rest = parts.slice(4 + 2 * HEAD.tokenValues.length);
  return {
    starts: startsOf(uints(parts[0])), codes: parts.slice(1, 4), values,
    versions: pairsColumn(...rest.slice(0, 3)), given: pairsColumn(...rest.slice(3, 6)),
  };
}

let pieces = null;
async function loadPieces() { return bytesColumn(...await partsOf("pieces")); }

/* The tokens of a row: their texts as bytes, values by name (null if there are none), spans of versions, ranges given. */
async function tokensOf(row) {
  const [number, place] = placeIn(chunkStarts, row);
  if (!document.getElementById("tokens-" + number)) return null;
  const chunk = await cached(tokenChunks, number, loadTokens);
  pieces = await (pieces ??= loadPieces());
  const start = chunk.starts[place], length = chunk.starts[place + 1] - start, [lowest, middle, highest] = chunk.codes;
  const codeAt = i => lowest[i] | middle[i] << 8 | highest[i] << 16;
  const codes = Array.from({ length }, (_, i) => codeAt(start + i));
  const values = {};
  for (const [name, [low, high]] of Object.entries(chunk.values)) {
    values[name] = low.length ? Float32Array.from(codes, (_, i) => halfFloat(low[start + i], high[start + i])) : null;
  }
  const texts = codes.map(code => pieces.at(code));
  return { pieces: texts, codes, values, versions: chunk.versions(place), given: chunk.given(place) };
}
