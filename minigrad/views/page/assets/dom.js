// ---------------------------------------------------------------- elements and numbers; text goes in as text, always

// el("p.note", { title: "…" }, child, …): an element of a tag with classes; properties may be left out.
const maker = (space) => (kind, ...children) => {
  const [tag, ...classes] = kind.split(/[. ]/).filter(Boolean);
  const element = document.createElementNS(space, tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  const properties = children[0]?.constructor === Object ? children.shift() : {};
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, f] of Object.entries(value)) element.addEventListener(event, f);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};
const el = maker("http://www.w3.org/1999/xhtml");
const svg = maker("http://www.w3.org/2000/svg");
const ml = maker("http://www.w3.org/1998/Math/MathML");
const byId = (id) => document.getElementById(id);
const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

const words = { nan: "NaN", inf: "∞", "-inf": "−∞" };
// Four digits, with a true minus sign.
function digits(x, count = 4) {
  if (typeof x === "string") return words[x];
  if (x === null || x === undefined) return "–";
  if (!Number.isFinite(x)) return digits(String(x).replace("Infinity", "inf").toLowerCase());
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text =
    size >= 1e-3 && size < 1e5
      ? String(Number(x.toPrecision(count)))
      : x.toExponential(Math.min(count - 1, 2));
  return text.replace(/-/g, "−").replace("e+", "e");
}
// Two digits: what fits on a node.
function brief(x) {
  if (typeof x !== "number" || x === 0) return digits(x);
  const size = Math.abs(x);
  if (size >= 1e-3 && size < 1e3) return digits(x, 2);
  return x.toExponential(0).replace(/-/g, "−").replace("e+", "e");
}
const counted = (n) =>
  n < 1e4 ? String(n) : n < 1e6 ? `${+(n / 1e3).toPrecision(3)}k` : `${+(n / 1e6).toPrecision(3)}M`;
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const number = (stat, x, text) =>
  el("span", { class: "number", "data-stat": stat, "data-value": x }, text || digits(x));
const button = (text, on, properties) =>
  el("button", { type: "button", on: { click: on }, ...properties }, text);
