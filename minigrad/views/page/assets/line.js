// ---------------------------------------------------------------- a line: a use of a value, and the gradient that came back

function drawLine(line) {
  const d = pathOf(line);
  const back = line.wires[0].back;
  const title = svg("title", {});
  const group = svg(
    "g",
    {},
    title,
    svg("path", { class: "wide", d }),
    svg("path", { class: "stroke", d }),
    svg("path", { class: "flow", d }),
  );
  const label =
    back &&
    svg("text", {
      class: "hands-on",
      transform: `translate(${line.right + 7} ${(line.top + line.bottom) / 2}) rotate(90)`,
    });
  if (label) group.append(label);
  line.redo = (view) => {
    const shown = view.all ? line.wires.flatMap((wire) => wire.edges) : line.wires.map(edgeOnTop);
    const sent = shown.filter((edge) => edge.sent !== undefined);
    const top = sent.length ? Math.max(...sent.map((edge) => edge.bin)) : null;
    const sizes = sent.map((edge) => sizeSent(edge)).sort((a, b) => rank(a) - rank(b));
    const range = [...new Set([sizes[0], sizes[sizes.length - 1]].map((size) => digits(size, 3)))].join(
      " to ",
    );
    const { source, target } = line.wires[0];
    const further =
      shown.length && back ? ` in ${shown[0].apart === 1 ? "the next copy" : "another copy"}` : "";
    title.textContent = `${labelOf(source)} → ${labelOf(target)}${further}${sent.length ? ` · sends back ${range}` : ""}`;
    if (label)
      label.textContent = laneText(line, sent.length ? (view.all ? range : digits(sizes[0], 2)) : "", view);
    group.style.setProperty("--width", top === null ? 1.3 : 1.4 + top * 0.28);
    line.grade = sent.length ? `line${top}` : "dry";
  };
  return group;
}
// Along a lane: to which copy, how often, and the gradient's size, as much of it as there is room for.
function laneText(line, size, { all }) {
  const [wire] = line.wires;
  const to = wire.edges[0].apart === 1 ? "to the next" : "to another";
  const times = all ? `×${wire.edges.length}` : "";
  const texts = [`${to} ${times}${size && ` · ${size}`}`, `${to} ${times}`, times];
  return texts.find((text) => widthOf(text, FONT.lane) < line.bottom - line.top - 24) ?? "";
}
