/* Opens a section that an address names, and what it is folded into. */
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  const own = target.querySelector(":scope > details");
  if (own) own.open = true;
  target.scrollIntoView();
}

addEventListener("hashchange", reveal);
document.addEventListener("click", event => {
  const link = event.target.closest("a[href^='#']");
  if (link && link.hash === location.hash) reveal();
});
if (location.hash) reveal();

/* On paper nothing is folded. */
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach(node => { node.open = true; });
});
addEventListener("afterprint", () => folded.forEach(node => { node.open = false; }));
