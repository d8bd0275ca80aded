// What is shown as a file: the graph, or a head of attention as a drawing that needs no page.

// A drawing as text, in the colours of the theme at hand.
function standalone(drawing) {
  const copy = drawing.cloneNode(true);
  const { width, height } = drawing.viewBox.baseVal;
  for (const [name, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height, "font-family": "Helvetica, Arial, sans-serif" })) copy.setAttribute(name, value);
  return new XMLSerializer().serializeToString(copy).replace(/var\(--([\w-]+)\)/g, (_, name) => colour(name));
}
function download(blob, name) {
  const address = URL.createObjectURL(blob);
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
function saveSvg(drawing, name) {
  download(new Blob([standalone(drawing)], { type: "image/svg+xml" }), `${name}.svg`);
}
async function savePng(drawing, name) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(drawing))}`;
  await image.decode();
  const canvas = el("canvas");
  [canvas.width, canvas.height] = [image.width * 2, image.height * 2];
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => download(blob, `${name}.png`));
}
const fileName = (text) => text.replace(/[^\w.-]+/g, "_") || "graph";
const saveLinks = (drawing, name) => el("span.save", "save as ", link("SVG", () => saveSvg(drawing(), fileName(name))), " ", link("PNG", () => savePng(drawing(), fileName(name))));

// A head as a drawing: A and its gradient, with names and, where they fit, numbers.
function drawingOfHead(one) {
  const names = [pooledNames(one.queries, one.pool[0]), pooledNames(one.keys, one.pool[1])].map((all) => all.map((name) => short(name, 12)));
  const side = one.maps[0].array.columns <= MOST_NUMBERS ? 40 : 16;
  const [wide, high] = [names[1].length * side, names[0].length * side];
  const each = wide + 110;
  const text = (x, y, words, more) => svg("text", { x, y, fill: colour("ink"), "font-size": 12, ...more }, words);
  const maps = one.maps.flatMap(({ array, matrix, kind, sign, range }, k) => {
    const [left, top, paint] = [k * each + 90, 110, painter(kind, range)];
    const cells = names[0].flatMap((query, i) => names[1].flatMap((key, j) => {
      const x = cellOf(array, matrix, i, j);
      const masked = Number.isNaN(x);
      const fill = masked ? colour("faint") : paint(x);
      const [at, down] = [left + j * side, top + i * side];
      return [svg("rect", { x: at, y: down, width: side - 1, height: side - 1, fill }),
        side > 30 && !masked && text(at + side / 2, down + side / 2 + 4, digits(x, 2), { fill: inkOn(fill), "font-size": 11, "text-anchor": "middle" })];
    }));
    return [text(left, 50, sign, { "font-weight": "bold" }), ...cells,
      ...names[0].map((name, i) => text(left - 6, top + (i + 0.5) * side + 4, name, { "text-anchor": "end" })),
      ...names[1].map((name, j) => text(0, 0, name, { transform: `translate(${left + (j + 0.6) * side} ${top - 6}) rotate(-45)` }))];
  });
  const size = [each * one.maps.length + 90, high + 130];
  return svg("svg", { viewBox: `0 0 ${size[0]} ${size[1]}` }, svg("rect", { width: size[0], height: size[1], fill: colour("paper") }),
    text(12, 22, `${one.path}, head ${one.head}`, { "font-size": 15, "font-weight": "bold" }), maps);
}
