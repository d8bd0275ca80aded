// ---------------------------------------------------------------- elements and numbers; text goes in as text, always

// el("p.note", { title: "…" }, child, …): an element of a tag with classes; properties may be left out, and so may
// children that are null or false.
const given = (x) => x !== undefined && x !== null && x !== false;
const maker = (space) => (kind, ...children) => {
  const [tag, ...classes] = kind.split(/[. ]/).filter(Boolean);
  const element = document.createElementNS(space, tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  const { on = {}, ...properties } = children[0]?.constructor === Object ? children.shift() : {};
  for (const [event, f] of Object.entries(on)) element.addEventListener(event, f);
  for (const [name, value] of Object.entries(properties))
    if (given(value)) element.setAttribute(name, value === true ? "" : value);
  element.append(...children.flat(Infinity).filter(given));
  return element;
};
const el = maker("http://www.w3.org/1999/xhtml");
const svg = maker("http://www.w3.org/2000/svg");
const ml = maker("http://www.w3.org/1998/Math/MathML");
const count = (n) => Array.from({ length: n }, (_, i) => i);
const byId = (id) => document.getElementById(id);
const button = (text, on, properties) => el("button", { type: "button", on: { click: on }, ...properties }, text);

const clamp = (x, least, most) => Math.max(least, Math.min(most, x));
// What keys do at an element. A handler that gives false leaves its key to others.
function onKeys(element, handlers) {
  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !handlers[event.key]) return;
    if (handlers[event.key](event) === false) return;
    event.preventDefault();
    event.stopPropagation();
  });
}
// Draws a place anew. The focus stays with the control of the same name there, or else goes to what stands in its stead.
const titleOf = (element) => element.ariaLabel || element.textContent;
function refill(place, children, instead) {
  const held = place.contains(document.activeElement) ? document.activeElement : null;
  place.replaceChildren(...children);
  if (!held || held === place) return;
  const same = [...place.querySelectorAll(held.localName)].find((one) => titleOf(one) === titleOf(held));
  same?.focus({ preventScroll: true });
  if (same !== document.activeElement) instead().focus({ preventScroll: true });
}
// Turns over what stands in one place: one back, one forward.
const pager = (turn, middle, what) =>
  el("span.pager",
    button("‹", () => turn(-1), { "aria-label": `previous ${what}` }),
    middle,
    button("›", () => turn(1), { "aria-label": `next ${what}` }),
  );

const words = { nan: "NaN", inf: "∞", "-inf": "−∞" };
const shortened = (text) => text.replace(/-/g, "−").replace("e+", "e");
// Four digits, with a true minus sign.
function digits(x, count = 4) {
  if (typeof x === "string") return words[x];
  if (!given(x)) return "–";
  if (!Number.isFinite(x)) return digits(String(x).replace("Infinity", "inf").toLowerCase());
  const size = Math.abs(x);
  const plain = x === 0 || (size >= 1e-3 && size < 1e5);
  return shortened(plain ? String(Number(x.toPrecision(count))) : x.toExponential(Math.min(count - 1, 2)));
}
// Two digits: what fits on a node.
function brief(x) {
  const size = Math.abs(x);
  return typeof x !== "number" || x === 0 || (size >= 1e-3 && size < 1e3) ? digits(x, 2) : shortened(x.toExponential(0));
}
const counted = (n) =>
  n < 1e4 ? String(n) : n < 1e6 ? `${+(n / 1e3).toPrecision(3)}k` : `${+(n / 1e6).toPrecision(3)}M`;
const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const number = (stat, x, text = digits(x)) => el("span.number", { "data-stat": stat, "data-value": x }, text);
