// ---------------------------------------------------------------- the box of a scope

// Open, a frame with a heading; closed, a box with a cell for each copy of it, or for each parameter's gradient in it.
function drawScope(box, actions) {
  const open = Boolean(box.layout);
  const { width: w, height: h, scope } = box;
  const fold = folds[scope];
  const inside = nodesIn(scope);
  const group = svg("g", {
    class: `scope ${open ? "open" : "closed"} ${fold ? "fold" : ""}`,
    "data-scope": scope,
    transform: `translate(${box.x - w / 2} ${box.y - h / 2})`,
  });
  const total = ops(inside.filter((node) => node.op).length);
  const start = open ? box.layout.heading : 0;
  if (fold)
    for (const back of [6, 3])
      group.append(svg("rect", { class: "body under", x: back, y: -back, width: w, height: h, rx: 12 }));
  group.append(svg("rect", { class: "body", width: w, height: h, rx: 12 }));
  const name = svg("text", { class: "name", x: start + 28, y: 20 });
  const note = svg("text", { class: "count", x: 28, y: 38 });
  const head = svg(
    "g",
    { class: "head", tabindex: -1, role: "button", "aria-expanded": String(open) },
    svg("title", {}, `${scope}: ${total}; Enter or click ${open ? "closes" : "opens"} it`),
    svg("rect", {
      class: "hit",
      x: start + 4,
      y: 3,
      width: open ? headingWidth(scope) - (fold ? 96 : 0) : w - 8,
      height: open ? 26 : h - 6,
      rx: 8,
    }),
    svg("text", { class: "twist", x: start + 12, y: 20 }, open ? "▾" : "▸"),
    name,
    note,
  );
  head.addEventListener("click", () => actions.toggle(scope));
  group.append(head);
  const turner = fold && turnerOf(scope, actions);
  const cells = svg("g", {});
  if (turner) group.append(turner.group);
  if (!open) group.append(cells);
  box.redo = (view) => {
    const called = short(
      fold ? (view.all ? fold.name : lastName(fold.copies[copyOnTop.get(scope)])) : lastName(scope),
      30,
    );
    name.textContent = called;
    const after = start + 36 + widthOf(called, FONT.name);
    if (turner) turner.place(after, view.all);
    if (open) {
      note.setAttribute("x", after + (fold ? 92 : 0));
      note.setAttribute("y", 20);
    }
    note.textContent = !open && view.active === box.key ? progress(scope, view.step) : total;
    head.setAttribute(
      "aria-label",
      `${scope}${fold ? `, ${fold.copies.length} alike` : ""}, ${note.textContent}`,
    );
    if (!open) cells.replaceChildren(...[closedStrip(scope, inside, w, h, view)].filter(Boolean));
  };
  return group;
}
// Which op of a closed scope a step is at.
function progress(scope, step) {
  const inside = nodesIn(scope).filter((node) => node.op);
  const at = inside.indexOf(leaderOf(step.node));
  return short(`${at + 1} of ${inside.length}: ${labelOf(nodes[step.node])}`, 26);
}
function closedStrip(scope, inside, w, h, { known, all }) {
  const graded = inside.filter((node) => node.kind === "parameter" && hasCap(node));
  const shown = (graded.length ? graded : inside.filter(hasCap)).slice(0, 24);
  if (!shown.length) return null;
  const fold = folds[scope];
  const handed = (lanesInside(scope)[0] || { source: shown[0] }).source;
  if (fold) return strip(handed.copies, 28, h - 17, w - 48, 9, known, all ? null : onTop(handed));
  const each = Math.min(12, (w - 40) / shown.length);
  return svg(
    "g",
    { class: "strip" },
    shown.map((node, i) => {
      const seen = (all ? node.copies : [onTop(node)]).filter(
        (copy) => copy.gradient !== undefined && known(copy),
      );
      const look = seen.length ? `bin${binOf(seen)} ${worstOf(seen)}` : "waiting";
      return svg("rect", {
        class: `cell ${look}`,
        "data-cell": node.id,
        x: 28 + i * each,
        y: h - 17,
        width: each - 1.5,
        height: 9,
        rx: 1.5,
      });
    }),
  );
}
const lanesInside = (scope) =>
  [...lanesOf].filter(([home]) => within(home, scope)).flatMap(([, lanes]) => lanes);

// Arrows that turn the copies of a block over, and which of them is on top.
function turnerOf(scope, actions) {
  const total = folds[scope].copies.length;
  const text = svg("text", { class: "count", y: 20, x: 45, "text-anchor": "middle" });
  const arrow = (sign, by, x) => {
    const turn = () => actions.turn(scope, (copyOnTop.get(scope) + by + total) % total);
    const group = svg(
      "g",
      {
        class: "turn",
        role: "button",
        tabindex: -1,
        "aria-label": `${by < 0 ? "previous" : "next"} of ${total} alike`,
        on: { click: turn },
      },
      svg("rect", { class: "hit", x: x - 9, y: 6, width: 18, height: 20, rx: 6 }),
      svg("text", { x, y: 20, class: "twist", "text-anchor": "middle" }, sign),
    );
    group.turn = turn;
    return group;
  };
  const [before, after] = [arrow("‹", -1, 9), arrow("›", 1, 81)];
  const group = svg("g", {}, before, text, after);
  const place = (x, all) => {
    group.setAttribute("transform", `translate(${x} 0)`);
    text.textContent = all ? `×${total}` : `${copyOnTop.get(scope) + 1} of ${total}`;
  };
  return { group, place };
}
