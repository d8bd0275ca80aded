// ---------------------------------------------------------------- the box of a node, or of its copies in folded blocks

// Rounded for ops, round ends for parameters, cut corners for inputs, dashes for constants: shape says what it is.
function outline(node, w, h) {
  const r = node.kind === "parameter" ? h / 2 : 8;
  const c = 8;
  if (node.kind === "input" || node.kind === "detached") {
    return `M${c} 0H${w - c}L${w} ${c}V${h - c}L${w - c} ${h}H${c}L0 ${h - c}V${c}Z`;
  }
  return `M${r} 0H${w - r}A${r} ${r} 0 0 1 ${w} ${r}V${h - r}A${r} ${r} 0 0 1 ${w - r} ${h}H${r}A${r} ${r} 0 0 1 0 ${h - r}V${r}A${r} ${r} 0 0 1 ${r} 0Z`;
}
// A name with what is below it set small and low; without one, the op, and the sign that formulas give it.
function titleText(node, x, y) {
  if (!node.name && !isLoss(node)) {
    const [base, under] = parts(signOf(node));
    const sign = node.op && [
      svg("tspan", { class: "sign", dx: 6 }, base),
      svg("tspan", { class: "sign under", dy: 3 }, under),
    ];
    return svg("text", { x, y, class: "title op" }, svg("tspan", {}, titleOf(node)), sign);
  }
  const [base, under] = parts(titleOf(node));
  return svg(
    "text",
    { x, y, class: "title" },
    svg("tspan", {}, base),
    under && svg("tspan", { class: "under", dy: 4 }, under),
  );
}
function drawNode(box, actions) {
  const { node, width: w, height: h } = box;
  const left = node.kind === "parameter" ? 16 : 12;
  const middle = h / 2 - (isCopied(node) && hasCap(node) ? 4 : 0);
  const group = svg("g", {
    class: "node",
    "data-node": node.id,
    role: "button",
    tabindex: -1,
    transform: `translate(${box.x - w / 2} ${box.y - h / 2})`,
  });
  const title = svg("title", {});
  group.append(title, svg("path", { class: "body", d: outline(node, w, h) }));
  if (hasCap(node))
    group.append(
      svg("clipPath", { id: `clip${box.key}` }, svg("path", { d: outline(node, w, h) })),
      (box.cap = svg("g", { class: "cap", "clip-path": `url(#clip${box.key})` })),
    );
  group.append(svg("path", { class: "frame", d: outline(node, w, h) }));
  if (isLoss(node))
    group.append(
      svg("path", { class: "frame inner", d: outline(node, w - 7, h - 7), transform: "translate(3.5 3.5)" }),
    );
  group.append(
    (box.text = svg("g", {})),
    svg("text", { x: left, y: middle + 15, class: "small" }, below(node), (box.mark = svg("tspan", {}))),
  );
  group.addEventListener("click", () => actions.choose(onTop(node).id));
  box.redo = (view) => {
    // what the copy on top changes
    const shown = onTop(node);
    const about = aboutNode(node, shown, view.all);
    title.textContent = about;
    group.setAttribute("aria-label", about);
    box.text.replaceChildren(titleText(shown, left, below(node) ? middle - 2 : middle + 5));
    const checked = (view.all ? node.copies : [shown]).filter((copy) => copy.check);
    const right = checked.every((copy) => copy.check.ok);
    box.mark.textContent = checked.length ? (right ? " ✓" : " ✗") : "";
    box.mark.setAttribute("class", right ? "agrees" : "differs");
    if (box.cap) fillCap(box, shown, view);
  };
  return group;
}
function aboutNode(node, shown, all) {
  const copies = all && isCopied(node) ? node.copies : [shown];
  const name = all && isCopied(node) ? `${labelOf(node)} in ${copies.length} blocks` : fullName(shown);
  const graded = copies.filter((copy) => copy.gradient !== undefined);
  const state = graded.length
    ? `gradient ${spreadOf(graded).join(" ")}, ${stateText(graded)}${shown.check ? `, ${shown.check.ok ? "equals its numeric derivative" : "WRONG beside its numeric derivative"}` : ""}`
    : `no gradient: ${shown.why}`;
  return [name, node.op && node.name ? node.op : "", shapeOf(node), state].filter(Boolean).join(" · ");
}
function fillCap(box, shown, { all, known }) {
  const { node, width: w, height: h } = box;
  const several = isCopied(node);
  const graded = node.copies.filter((copy) => copy.gradient !== undefined);
  const some = all && several ? graded : shown.gradient === undefined ? [] : [shown];
  const state = some.length ? worstOf(some) : "none";
  const glyph = state === "ok" ? "" : `${states[state][0]} `;
  const lines = some.length ? spreadOf(some) : ["–"];
  lines[0] = glyph + lines[0];
  const middle = w - CAP / 2 - (node.kind === "parameter" ? 2 : 0);
  const y = (several ? h - 8 : h) / 2 + (lines.length > 1 ? -1 : 4.5);
  const look = RED.has(state) || some.every((copy) => copy.state === state) ? state : "ok";
  box.cap.setAttribute("class", `cap bin${some.length ? binOf(some) : 0} ${look}`);
  const text = svg(
    "text",
    { x: middle, y, class: lines.length > 1 || lines[0].length > 6 ? "long" : null },
    lines.map((line, i) => svg("tspan", { x: middle, dy: i ? 11 : 0 }, line)),
  );
  box.cap.replaceChildren(
    svg(
      "g",
      { class: some.length && some.some(known) ? "shown" : "hidden" },
      svg("rect", { class: "fill", x: w - CAP, y: 0, width: CAP, height: several ? h - 9 : h }),
      text,
    ),
  );
  if (several) box.cap.append(strip(node.copies, w - CAP, h - 8, CAP, 8, known, all ? null : shown));
}
