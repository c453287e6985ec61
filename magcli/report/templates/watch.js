/* Follows a run: asks for the version of the page, and brings the page up to date in place, so that what is folded,
   scrolled, focused or pointed at stays so. */
const SECONDS = 3, TRIES = 3, token = new URLSearchParams(location.search).get("token");
const LOST = "magcli does not answer any more, because its command has ended. This is the last page that it served.";
let failures = 0;

async function ask(path) {
  const answer = await fetch(`${path}?token=${encodeURIComponent(token)}`, { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.statusText);
  return answer;
}

/* Makes one element like another. Children with an id are matched by it, the others by their place. */
function morph(old, now) {
  const isPointed = old.classList.contains("pointed");
  for (const { name } of [...old.attributes]) {
    const isState = name === "open" && old.tagName === "DETAILS";
    if (!now.hasAttribute(name) && !isState) old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (isPointed) old.classList.add("pointed");
  morphChildren(old, now);
}

function morphChildren(old, now) {
  const unnamed = [...old.childNodes].filter(node => !node.id);
  const kept = [...now.childNodes].map(node => {
    const match = node.id ? old.querySelector(`:scope > #${CSS.escape(node.id)}`) : unnamed.shift();
    if (!match || match.nodeName !== node.nodeName) return document.importNode(node, true);
    if (node.nodeType === Node.ELEMENT_NODE) morph(match, node);
    else if (match.nodeValue !== node.nodeValue) match.nodeValue = node.nodeValue;
    return match;
  });
  for (const node of [...old.childNodes]) if (!kept.includes(node)) node.remove();
  kept.forEach((node, place) => { if (old.childNodes[place] !== node) old.insertBefore(node, old.childNodes[place]); });
}

function update(text) {
  const now = new DOMParser().parseFromString(text, "text/html");
  for (const query of ["header", "nav", "main"]) {
    morph(document.querySelector(query), now.querySelector(query));
  }
  Object.assign(document.body.dataset, now.body.dataset);
  document.title = now.title;
  const pointed = document.querySelector("svg.chart.pointed");
  if (pointed) point(pointed, placeOf(pointed));
}

const hasEnded = () => ["finished", "stopped"].includes(document.body.dataset.state);

async function follow() {
  try {
    const { version } = await (await ask("version")).json();
    if (version !== document.body.dataset.version) update(await (await ask("./")).text());
    failures = 0;
  } catch {
    failures += 1;
  }
  if (failures >= TRIES) {
    document.getElementById("live").className = "lost";
    document.getElementById("live-text").textContent = LOST;
  } else if (!hasEnded()) setTimeout(follow, 1000 * SECONDS);
}

if (!hasEnded()) setTimeout(follow, 1000 * SECONDS);
