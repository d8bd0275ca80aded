// ---------------------------------------------------------------- playing: how fast, and by steps or by blocks

const SPEEDS = { "¼×": 4400, "½×": 2200, "1×": 1100, "2×": 550, "4×": 275, "10×": 110 }; // milliseconds a step

// The block, or the time step, that a step belongs to: a copy of what is drawn once, or else its scope.
function blockOf({ phase, node }) {
  if (node === undefined) return phase;
  const [fold] = nodes[node].folds;
  return `${phase} ${fold === undefined ? nodes[node].scope : `${fold} ${numberIn(nodes[node], fold)}`}`;
}
// The first step of the next block, or of the one before.
function besideBlock(at, by) {
  const here = blockOf(steps[at]);
  let to = at + by;
  while (steps[to] && blockOf(steps[to]) === here) to += by;
  if (by < 0) while (to > 0 && blockOf(steps[to - 1]) === blockOf(steps[to])) to -= 1;
  return clamp(to, 0, steps.length - 1);
}
function play(on) {
  clearTimeout(state.playing);
  state.playing = on ? setTimeout(playOn, SPEEDS[byId("speed").value]) : null;
  byId("play").setAttribute("aria-label", on ? "Pause" : "Play");
  byId("play").setAttribute("aria-pressed", String(Boolean(on)));
  byId("now").setAttribute("aria-live", on ? "off" : "polite"); // no flood of announcements
}
function playOn() {
  go(byId("by").value === "block" ? besideBlock(state.at, 1) : state.at + 1);
  play(state.at < steps.length - 1 && !hides(steps[state.at]));
}
