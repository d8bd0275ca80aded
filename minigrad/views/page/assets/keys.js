// ---------------------------------------------------------------- keys

const keys = [
  ["ArrowRight", "→", "next step", () => go(state.at + 1)],
  ["ArrowLeft", "←", "previous step", () => go(state.at - 1)],
  ["PageDown", "PgDn PgUp", "next, previous block or time step", () => go(besideBlock(state.at, 1))],
  ["PageUp", "", "", () => go(besideBlock(state.at, -1))],
  [" ", "space", "play or pause", () => play(!state.playing)],
  ["Home", "Home", "first forward step", () => go(1)],
  ["End", "End", "last backward step", () => go(steps.length - 1)],
  ["b", "b", "first backward step", () => go(record.forward.length + 1)],
  ["o", "o", "the whole pass", () => go(0)],
  ["Enter", "Enter", "open the closed scope at this step", openAtStep],
  ["u", "u", "up, out of the scope", up],
  ["/", "/", "find a node or a step", openSearch],
  ["1", "1 2 3", "step, by hand, attention", () => showTab("step")],
  ["2", "", "", () => showTab("chapters")],
  ["3", "", "", () => showTab("attention")],
  [",", ", .", "the block before, the block after, of those drawn once", () => turnBy(-1)],
  [".", "", "", () => turnBy(1)],
  ["+", "+ − 0", "larger, smaller, fit", () => view.zoom(1.2)],
  ["-", "", "", () => view.zoom(1 / 1.2)],
  ["0", "", "", () => view.fit()],
  ["t", "t", "light, dark, auto", nextTheme],
  ["?", "?", "these keys", () => byId("help").showModal()],
];
const actionOf = (key) => keys.find(([one]) => one === key)?.[3];
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const { target } = event;
  const tag = target.tagName;
  if (tag === "SELECT" || (tag === "INPUT" && target.type !== "range")) return;
  if ((tag === "BUTTON" || tag === "SUMMARY") && (event.key === "Enter" || event.key === " ")) return;
  if (target.matches?.(WIDE) && event.key.startsWith("Arrow")) return; // it scrolls
  const action = actionOf(event.key);
  if (!action) return;
  event.preventDefault();
  if (event.key !== " " && state.playing) play(false);
  action();
}
