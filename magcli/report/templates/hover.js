"use strict";
const tip = document.getElementById("tip");

function show(lines, x, y) {
  tip.replaceChildren(...lines.map(line => Object.assign(document.createElement("div"), { textContent: line })));
  tip.style.display = "block";
  const right = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = Math.max(8, Math.min(x + 12, right)) + "px";
  tip.style.top = Math.max(8, Math.min(y, innerHeight - tip.offsetHeight - 8)) + "px";
}

function hide() { tip.style.display = "none"; }

function follow(chart) {
  const data = JSON.parse(chart.dataset.points), cursor = chart.querySelector(".cursor"), width = chart.viewBox.baseVal.width;
  let at = data.length - 1;
  function point(index) {
    at = Math.max(0, Math.min(data.length - 1, index));
    const [x, lines] = data[at], box = chart.getBoundingClientRect();
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    chart.classList.add("pointed");
    show(lines, box.left + x / width * box.width, box.top + 8);
  }
  function nearest(event) {
    const box = chart.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * width;
    let best = 0;
    data.forEach(([dataX], index) => { if (Math.abs(dataX - x) < Math.abs(data[best][0] - x)) best = index; });
    point(best);
  }
  function leave() { chart.classList.remove("pointed"); hide(); }
  chart.addEventListener("pointermove", nearest);
  chart.addEventListener("pointerdown", nearest);
  chart.addEventListener("pointerleave", leave);
  chart.addEventListener("focus", () => point(at));
  chart.addEventListener("blur", leave);
  chart.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -data.length, End: data.length }[event.key];
    if (step) { event.preventDefault(); point(at + step); }
  });
}

document.querySelectorAll("svg.chart").forEach(follow);
for (const part of document.querySelectorAll("[data-tip]")) {
  part.addEventListener("pointermove", event => show([part.dataset.tip], event.clientX, event.clientY + 14));
  part.addEventListener("pointerleave", hide);
}
