// ---------------------------------------------------------------- pictures: each scope as Python drew it, lit by the step

/* A picture's boxes and lines have ids: `n5` is the box of node 5 and of its copies, `n5sum` the sum of its gradients,
   `e7` a line; a closed scope's id stands in `closed`. A step changes classes alone, and of copies the number shown. */
const pictures = record.pictures.map((picture, number) => ({ ...picture, number }));
for (const picture of pictures)
  picture.parent = pictures.find((other) => picture.scope in other.closed && other !== picture);

// The innermost picture that shows a node by a box of its own.
function pictureOf(node) {
  let picture = pictures[0];
  for (let inner = picture; inner; inner = pictureOfScope(closedAround(node, inner))) picture = inner;
  return picture;
}
const pictureOfScope = (scope) => (scope ? pictures.find((one) => one.scope === scope) : undefined);
// The closed scope of a picture that a node lies in.
const closedAround = (node, picture) => around(node.home).find((scope) => scope in picture.closed);
// The nearest picture around this one, or itself, that shows a node, if only within a closed scope.
function nearest(picture, node) {
  while (picture.parent && !within(node.home, picture.scope)) picture = picture.parent;
  return picture;
}
const boxIdOf = (node, picture) => picture.closed[closedAround(node, picture)] || `n${node.lead}`;

function Picture(number) {
  const shows = pictures[number];
  const drawing = byId(`picture-${number}`).content.firstElementChild.cloneNode(true);
  const scopes = Object.fromEntries(Object.entries(shows.closed).map(([scope, id]) => [id, scope]));
  const label = "Computation graph; arrow keys up and down move from box to box";
  for (const [name, value] of Object.entries({ class: "drawing", role: "group", "aria-label": label })) drawing.setAttribute(name, value);
  const boxes = [...drawing.querySelectorAll(".node")].map(boxOf).sort((a, b) => a.first - b.first);
  const lines = [...drawing.querySelectorAll(".edge")].map(lineOf);

  // What a box stands for: one node with its copies, or all nodes within a closed scope.
  function boxOf(element) {
    const [, id, isSum] = /^[ns](\d+)(sum)?$/.exec(element.id);
    const scope = scopes[element.id];
    const node = nodes[id];
    const inside = scope ? nodes.filter((one) => within(one.home, scope)) : [];
    const found = inside.map((one) => one.knownAt).filter(Number.isFinite);
    element.setAttribute("role", isSum ? "img" : "button");
    element.setAttribute("tabindex", -1);
    if (!isSum) element.dataset[scope ? "scope" : "node"] = scope || id;
    return {
      element,
      scope,
      node,
      first: Number(id) + (isSum ? 0.5 : 0),
      ranAt: Math.min(...inside.map((one) => stepOf.forward.get(one.id) ?? Infinity)),
      knownAt: found.length ? Math.max(...found) : Infinity,
      cell: !scope && !isSum && node.copies.size > 1 && cellOfBox(element),
    };
  }
  // The coloured cell of a box with its number, which are another in each copy.
  function cellOfBox(element) {
    const [ground, text] = [element.querySelector(".cell"), element.querySelector(".on")];
    return ground && text && { ground, text, bin: /bin\d/.exec(text.getAttribute("class"))[0], said: text.textContent };
  }
  function lineOf(element) {
    const [, id, sum] = /^[en](\d+)(sumline)?$/.exec(element.id);
    const own = sum ? [] : shows.lines[id].map((i) => edges[i]);
    const grade = [...element.querySelectorAll("[class*='line']")].map((one) => [one, one.getAttribute("class")]);
    return { element, node: sum ? nodes[id] : null, edges: own, grade };
  }

  function light() {
    const { at, marked } = state;
    const step = steps[at];
    const asking = hides(step);
    const upTo = asking ? at - 1 : at; // what a question asks for is not shown yet
    const [whole, back] = [step.phase === "overview", step.phase === "backward"];
    const all = whole && !asking;
    const ran = (node) => whole || back || !node.op || (stepOf.forward.get(node.id) ?? Infinity) <= at;
    const known = (node) => node.gradient !== undefined && (all || node.knownAt <= upTo);
    const [active, picked] = [step.node, state.chosen].map((id) => nodes[id] && boxIdOf(nodes[id], shows));
    drawing.setAttribute("class", `drawing ${step.phase}`);
    for (const box of boxes) {
      const { element, scope } = box;
      const copy = scope ? null : onTop(box.node);
      const is = {
        later: scope ? !whole && !back && box.ranAt > at : !ran(copy),
        known: scope ? all || box.knownAt <= upTo : known(copy),
        active: element.id === active,
        chosen: element.id === picked,
        marked: !scope && marked.has(all ? copy.lead : copy.id),
      };
      for (const [name, on] of Object.entries(is)) element.classList.toggle(name, on);
      element.ariaCurrent = is.active ? "step" : null;
      if (box.cell) showCopy(box.cell, all || !is.known ? null : copy);
    }
    for (const line of lines) {
      const own = all ? line.edges : line.edges.filter((edge) => onTop(nodes[edge.target]).id === edge.target);
      const sent = sentOf(own).filter((edge) => all || (back && stepOf.backward.get(edge.target) <= upTo));
      const is = {
        lit: (back ? sentOf(own) : own).some((edge) => edge.target === step.node),
        known: line.node ? known(onTop(line.node)) : sent.length > 0,
        later: step.phase === "forward" && own.every((edge) => stepOf.forward.get(edge.target) > at),
      };
      for (const [name, on] of Object.entries(is)) line.element.classList.toggle(name, on);
      if (line.edges.length > 1) gradeLine(line, all ? undefined : sent[0]?.bin);
    }
  }
  // The gradient of one copy in place of the range of all.
  function gradeLine({ grade }, bin) {
    for (const [one, colours] of grade)
      one.setAttribute("class", bin < ALARM ? colours.replace(/line\d/g, `line${bin}`) : colours);
  }
  function showCopy({ ground, text, bin, said }, copy) {
    const now = copy ? `bin${copy.bin}` : bin;
    ground.setAttribute("class", `cell ${now}`);
    text.setAttribute("class", `on ${now}`);
    text.textContent = copy ? `${states[copy.state][0]} ${sizeText(sizeAt(copy))}` : said;
  }
  return { shows, drawing, boxes, light, boxFor: (node) => boxes.find((box) => box.element.id === boxIdOf(node, shows)) };
}
