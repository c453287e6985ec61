/* What the page is made of. Text of rollouts only ever becomes text. */
const SVG = "http://www.w3.org/2000/svg";

function add(parent, name, text = "", className = "") {
  const node = document.createElement(name);
  node.textContent = text;
  if (className) node.className = className;
  return parent.appendChild(node);
}

function addLink(parent, text, state, className = "") {
  const node = add(parent, "a", text, className);
  node.href = hashOf(state);
  return node;
}

function draw(parent, name, attributes, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return parent.appendChild(node);
}

/* Control characters as pictures, and invisible marks such as those of the writing direction as their number. */
function shown(text) {
  return text
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, letter => String.fromCharCode(0x2400 + letter.charCodeAt(0)))
    .replace(INVISIBLE, codePoint);
}
const INVISIBLE = /[\u007f-\u009f\u00ad\u061c\u200b\u200c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
function codePoint(letter) { return "[U+" + letter.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "]"; }

function count(value) { return value.toLocaleString("en-US"); }
function number(value) {
  if (Number.isNaN(value)) return "-";
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : "∞";
  const text = Math.abs(value) < 1e-3 && value ? value.toExponential(1) : String(+value.toPrecision(3));
  return text.replace("-", "−");
}
function percent(value) { return Number.isNaN(value) ? "-" : (100 * value).toFixed(1) + "\u00a0%"; }

/* The mean of a column over some rows, of those that have a number. */
function meanOf(name, rows) {
  const values = columns.get(name)?.values;
  let sum = 0, known = 0;
  if (values) for (const row of rows) if (!Number.isNaN(values[row])) { sum += values[row]; known++; }
  return known ? sum / known : NaN;
}

/* How many of some rows have a choice. */
function countOf(name, choice, rows) {
  const column = columns.get(name), wanted = column.choices.indexOf(choice);
  let found = 0;
  for (const row of rows) if (column.values[row] === wanted) found++;
  return found;
}

/* A line of `points`, each {x, y, label, state}, over the updates; a dot leads to its group. */
function drawHistory(parent, points, yName) {
  const drawn = points.filter(point => !Number.isNaN(point.x) && !Number.isNaN(point.y));
  if (drawn.length < 2) return;
  const width = Math.min(900, innerWidth - 32), [left, right, top, bottom] = [60, width - 14, 24, 190];
  const xs = drawn.map(point => point.x), ys = drawn.map(point => point.y);
  const scale = (values, from, to) => {
    const low = Math.min(...values), high = Math.max(...values);
    return value => high > low ? from + (value - low) / (high - low) * (to - from) : (from + to) / 2;
  };
  const x = scale(xs, left, right), y = scale(ys, bottom, top);
  const name = yName + " by update", svg = draw(parent, "svg", {
    class: "history", viewBox: `0 0 ${width} 220`, width, height: 220, role: "group", "aria-label": name,
  });
  for (const value of new Set([Math.min(...ys), Math.max(...ys)])) {
    draw(svg, "line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) });
    draw(svg, "text", { class: "end", x: left - 8, y: y(value) + 5 }, number(value));
  }
  for (const value of new Set([Math.min(...xs), Math.max(...xs)])) {
    draw(svg, "text", { class: "middle", x: x(value), y: bottom + 22 }, number(value));
  }
  draw(svg, "text", { class: "soft", x: left, y: 14 }, name);
  draw(svg, "path", { d: "M" + drawn.map(point => x(point.x) + "," + y(point.y)).join(" ") });
  for (const point of drawn) {
    const link = draw(svg, "a", { href: hashOf(point.state), "aria-label": point.label });
    draw(draw(link, "circle", { cx: x(point.x), cy: y(point.y), r: 5 }), "title", {}, point.label);
  }
}
