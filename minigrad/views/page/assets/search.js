// ---------------------------------------------------------------- finding: steps by number, nodes by name, op, scope or place

const MOST_HITS = 40;

function openSearch() {
  byId("query").value = "";
  hits("");
  byId("search").showModal();
  byId("query").focus(); // wherever the focus was before
}
// "step 17" and "17" are steps of each pass; of nodes, those whose own path has the words come first.
function found(query) {
  const [, pass = "", nth] = /^(?:(forward|backward)\s+)?(?:step\s+)?(\d+)$/.exec(query.trim()) || [];
  const numbered = nth ? steps.filter((step) => step.number === Number(nth) && step.phase.startsWith(pass)) : [];
  const terms = query.split(/\s+/).filter(Boolean);
  const has = (text) => terms.every((term) => text.toLowerCase().includes(term));
  const ranked = nodes.map((node) => {
    const path = fullName(node).toLowerCase();
    const [own, all] = [labelOf(node).toLowerCase() === query || path === query, `${path} ${node.op || node.kind} ${node.place || ""}`];
    return [own ? 0 : path.endsWith(query) ? 1 : has(path) ? 2 : has(all) ? 3 : 4, node];
  });
  const those = ranked.filter(([rank]) => rank < 4).sort((a, b) => a[0] - b[0]);
  return [
    ...numbered.map((step) => hit(sentenceOf(step), "", () => go(step.at))),
    ...those.map(([, node]) => hit(fullName(node), ` ${node.op || node.kind} · ${shapeOf(node)}`, () => choose(node.id))),
  ];
}
function hit(text, more, visit) {
  const pick = () => {
    byId("search").close();
    visit();
  };
  return el("li", button([el("bdi", text), el("span.muted", more)], pick));
}
function hits(query) {
  const all = found(query.toLowerCase());
  const nothing = el("li.muted", "nothing found");
  byId("hits").replaceChildren(...(all.length ? all.slice(0, MOST_HITS) : [nothing]));
}
function listenToSearch() {
  const query = byId("query");
  const stops = () => [query, ...byId("hits").querySelectorAll("button")];
  const move = (by) => () => stops()[clamp(stops().indexOf(document.activeElement) + by, 0, stops().length - 1)].focus();
  const first = () => (document.activeElement === query ? stops()[1]?.click() : false);
  query.addEventListener("input", () => hits(query.value));
  onKeys(byId("search"), { ArrowDown: move(1), ArrowUp: move(-1), Enter: first });
}
