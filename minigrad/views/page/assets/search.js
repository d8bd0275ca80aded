// ---------------------------------------------------------------- finding

function openSearch() {
  byId("query").value = "";
  hits("");
  byId("search").showModal();
}
function hits(query) {
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (node) => `${fullName(node)} ${node.op || node.kind} ${node.place || ""}`.toLowerCase();
  const found = nodes.filter((node) => terms.every((term) => text(node).includes(term))).slice(0, 40);
  const pick = (node) => () => {
    byId("search").close();
    choose(node.id);
  };
  byId("hits").replaceChildren(
    ...found.map((node) =>
      el(
        "li",
        {},
        button(
          [
            el("bdi", {}, fullName(node)),
            el("span", { class: "muted" }, ` ${node.op || node.kind} · ${shapeOf(node)}`),
          ],
          pick(node),
        ),
      ),
    ),
  );
  if (!found.length) byId("hits").append(el("li", { class: "muted" }, "nothing found"));
}
function moveInHits(event) {
  const all = [...byId("hits").querySelectorAll("button")];
  const i = all.indexOf(document.activeElement);
  if (event.key === "ArrowDown" && all.length) all[Math.min(all.length - 1, i + 1)].focus();
  else if (event.key === "ArrowUp") (i > 0 ? all[i - 1] : byId("query")).focus();
  else if (event.key === "Enter" && document.activeElement === byId("query") && all.length) all[0].click();
  else return;
  event.preventDefault();
}
