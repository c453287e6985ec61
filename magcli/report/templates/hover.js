"use strict";
const tip = document.getElementById("tip"), places = new WeakMap();

function show(lines, x, y) {
  tip.replaceChildren(...lines.map(line => Object.assign(document.createElement("div"), { textContent: line })));
  tip.style.display = "block";
  const right = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = Math.max(8, Math.min(x + 12, right)) + "px";
  tip.style.top = Math.max(8, Math.min(y, innerHeight - tip.offsetHeight - 8)) + "px";
}

function hide() { tip.style.display = "none"; }

const pointsOf = chart => JSON.parse(chart.dataset.points);

/* Points at a value of a chart by its index; the chart remembers it. */
function point(chart, index) {
  const data = pointsOf(chart), at = Math.max(0, Math.min(data.length - 1, index)), [x, lines] = data[at];
  const cursor = chart.querySelector(".cursor"), box = chart.getBoundingClientRect();
  places.set(chart, at);
  cursor.setAttribute("x1", x);
  cursor.setAttribute("x2", x);
  chart.classList.add("pointed");
  show(lines, box.left + x / chart.viewBox.baseVal.width * box.width, box.top + 8);
}

function nearest(chart, clientX) {
  const box = chart.getBoundingClientRect(), x = (clientX - box.left) / box.width * chart.viewBox.baseVal.width;
  let best = 0;
  const data = pointsOf(chart);
  data.forEach(([dataX], index) => { if (Math.abs(dataX - x) < Math.abs(data[best][0] - x)) best = index; });
  return best;
}

const placeOf = chart => places.get(chart) ?? pointsOf(chart).length - 1;

/* The page listens at its root, in the capturing phase, so that charts which come later are followed too. */
function listen(kind, act) {
  document.addEventListener(kind, event => { if (event.target instanceof Element) act(event, event.target); }, true);
}

function move(event, target) {
  const chart = target.closest("svg.chart"), part = target.closest("[data-tip]");
  if (part) show(part.dataset.tip.split("\n"), event.clientX, event.clientY + 14);
  else if (chart) point(chart, nearest(chart, event.clientX));
}

function leave(event, target) {
  if (!target.matches("svg.chart, [data-tip]")) return;
  target.classList.remove("pointed");
  hide();
}

listen("pointermove", move);
listen("pointerdown", move);
listen("pointerleave", leave);
listen("blur", leave);
listen("focus", (event, target) => { if (target.matches("svg.chart")) point(target, placeOf(target)); });
listen("keydown", (event, target) => {
  if (!target.matches("svg.chart")) return;
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  if (step) { event.preventDefault(); point(target, placeOf(target) + step); }
});
