// ---------------------------------------------------------------- served alone: what the page was at is taken along when it is drawn anew

const offered = {
  record,
  nodes,
  arrays,
  indexOf,
  fullName,
  choose,
  symbolOf: (node) => inlineMath(symbol(node)),
  shown: () => state.tab === "step" && shown(),
  boxOf: (node, drawing) => drawing.querySelector(`#n${node.lead}`),
  take() {
    const canvas = byId("canvas");
    const drawing = canvas.firstElementChild;
    return {
      phase: steps[state.at].phase,
      node: steps[state.at].node,
      chosen: state.chosen,
      tab: state.tab,
      scope: state.picture.scope,
      inside: state.inside,
      attention: { ...chosen },
      wanted,
      scale: drawing.width.baseVal.value / drawing.viewBox.baseVal.width,
      place: [canvas.scrollLeft, canvas.scrollTop],
      panel: byId("panel").scrollTop,
    };
  },
};
// All as it was in the drawing before; `moved` says which node each one is now.
function beginAs({ was, moved }) {
  const now = (id) => (id === undefined || id === null ? id : moved ? moved[id] : id);
  const at = steps.findIndex((step) => step.phase === was.phase && step.node === now(was.node));
  Object.assign(chosen, was.attention);
  wanted = was.wanted;
  state.tab = was.tab;
  state.inside = was.inside;
  state.picture = pictures.find((one) => one.scope === was.scope) || pictures[0];
  begin(Math.max(0, at), now(was.chosen) ?? null);
  const canvas = byId("canvas");
  const drawing = canvas.firstElementChild;
  const by = (was.scale * drawing.viewBox.baseVal.width) / drawing.width.baseVal.value;
  if (Math.abs(by - 1) > 0.02) view.zoom(by);
  canvas.scrollTo({ left: was.place[0], top: was.place[1], behavior: "instant" });
  byId("panel").scrollTop = was.panel;
}
if (window.minigradPlay.before) beginAs(window.minigradPlay.before);
else begin();
window.minigradPlay.opened(offered);
