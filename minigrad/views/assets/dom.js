// Elements and numbers; text goes in as text, always.

const given = (x) => x !== undefined && x !== null && x !== false && x !== "";
const maker = (space) => (kind, ...children) => {
  const [tag, ...classes] = kind.split(/[. ]/).filter(Boolean);
  const element = document.createElementNS(space, tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  const { on = {}, ...properties } = children[0]?.constructor === Object ? children.shift() : {};
  for (const [event, f] of Object.entries(on)) element.addEventListener(event, f);
  for (const [name, value] of Object.entries(properties)) if (given(value)) element.setAttribute(name, value === true ? "" : value);
  element.append(...children.flat(Infinity).filter(given));
  return element;
};
const el = maker("http://www.w3.org/1999/xhtml");
const svg = maker("http://www.w3.org/2000/svg");
const byId = (id) => document.getElementById(id);
const count = (n) => Array.from({ length: n }, (_, i) => i);
const clamp = (x, least, most) => Math.max(least, Math.min(most, x));
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const button = (text, click, properties) => el("button", { type: "button", on: { click }, ...properties }, text);
const link = (text, click, properties) => button(text, click, { class: "link", ...properties });
const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const section = (title, ...children) => {
  const inside = children.flat(Infinity).filter(given);
  return inside.length > 0 && el("section.block", title && el("h3", title), inside);
};

// A cell of a heat map as it is read out; all that is known beforehand comes as text with the record.
function digits(x, places = 3) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
  const size = Math.abs(x);
  const text = x === 0 || (size >= 1e-3 && size < 1e5) ? String(Number(x.toPrecision(places))) : x.toExponential(places - 1);
  return text.replace("e+", "e");
}
// Where text is pointed at or focused: f(true); and when it no longer is: f(false).
function pointed(element, f) {
  for (const event of ["pointerenter", "focus"]) element.addEventListener(event, () => f(true));
  for (const event of ["pointerleave", "blur"]) element.addEventListener(event, () => f(false));
  return element;
}
