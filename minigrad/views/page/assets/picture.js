// ---------------------------------------------------------------- pictures: each scope as Python drew it, lit by the step

/* A picture's boxes and lines have ids: `n5` is the box of node 5 and of its copies, `n5sum` the sum of its gradients,
   `e7` a line; a closed scope's id stands in `closed`. A step changes classes alone, and of copies the number shown. */
const pictures = record.pictures.map((told, number) => ({ ...told, number }));
for (const picture of pictures)
  picture.parent = pictures.find((other) => picture.scope in other.closed && other !== picture);

// The innermost picture that shows a node by a box of its own.
function pictureOf(node) {
  let picture = pictures[0];
  for (let inner = picture; inner; inner = pictureOfScope(closedAround(node, inner))) picture = inner;
  return picture;
}
const pictureOfScope = (scope) => (scope ? pictures.find((picture) => picture.scope === scope) : undefined);
// The closed scope of a picture that a node lies in.
const closedAround = (node, picture) => around(leaderOf(node).home).find((scope) => scope in picture.closed);
// The nearest picture around this one, or itself, that shows a node, if only within a closed scope.
function nearest(picture, node) {
  while (picture.parent && !within(leaderOf(node).home, picture.scope)) picture = picture.parent;
  return picture;
}
const boxIdOf = (node, picture) => picture.closed[closedAround(node, picture)] || `n${leaderOf(node).id}`;

function Picture(number) {
  const told = pictures[number];
  const drawing = byId(`picture-${number}`).content.firstElementChild.cloneNode(true);
  const closedScopes = Object.fromEntries(Object.entries(told.closed).map(([scope, id]) => [id, scope]));
  drawing.setAttribute("class", "drawing");
  drawing.setAttribute("role", "group");
  drawing.setAttribute("aria-label", "Computation graph; arrow keys up and down move from box to box");
  const boxes = [...drawing.querySelectorAll(".node")].map(boxOf).sort((a, b) => a.first - b.first);
  const lines = [...drawing.querySelectorAll(".edge")].map(lineOf);

  // What a box stands for: one node with its copies, or all nodes within a closed scope.
  function boxOf(element) {
    const [, id, rest] = /^[ns](\d+)(sum)?$/.exec(element.id);
    const scope = closedScopes[element.id];
    const inside = scope ? nodes.filter((node) => within(leaderOf(node).home, scope)) : [];
    const graded = inside.filter((node) => node.gradient !== undefined);
    const ran = inside.map((node) => stepOf.forward.get(node.id) ?? Infinity);
    element.setAttribute("role", rest ? "img" : "button");
    element.setAttribute("tabindex", -1);
    if (!rest) element.dataset[scope ? "scope" : "node"] = scope || id;
    return {
      element,
      scope,
      id: element.id,
      node: nodes[id],
      isSum: Boolean(rest),
      first: Number(id) + (rest ? 0.5 : 0),
      ranAt: Math.min(...ran),
      knownAt: graded.length ? Math.max(...graded.map((node) => node.knownAt)) : Infinity,
      cell: !scope && !rest && nodes[id].copies.size > 1 ? cellOfBox(element) : null,
    };
  }
  // The coloured cell of a box with its number, which are another in each copy.
  function cellOfBox(element) {
    const [ground, text] = [element.querySelector(".cell"), element.querySelector(".on")];
    return ground && text && { ground, text, bin: /bin\d/.exec(text.getAttribute("class"))[0], said: text.textContent };
  }
  function lineOf(element) {
    const [, number_, sum] = /^[en](\d+)(sumline)?$/.exec(element.id);
    const own = sum ? [] : told.lines[number_].map((i) => edges[i]);
    const grade = [...element.querySelectorAll("[class*='line']")];
    return { element, node: sum ? nodes[number_] : null, edges: own, grade, colours: grade.map((g) => g.getAttribute("class")) };
  }

  function light({ at, chosen, marked, hides: asking }) {
    const step = steps[at];
    const upTo = asking ? at - 1 : at; // what a question asks for is not shown yet
    const [whole, back] = [step.phase === "overview", step.phase === "backward"];
    const all = whole && !asking;
    const ran = (node) => whole || back || !node.op || (stepOf.forward.get(node.id) ?? Infinity) <= at;
    const known = (node) => node.gradient !== undefined && (all || node.knownAt <= upTo);
    const idOf = (id) => (id === undefined || id === null ? null : boxIdOf(nodes[id], told));
    const [active, picked] = [idOf(step.node), idOf(chosen)];
    drawing.setAttribute("class", `drawing ${step.phase}`);
    for (const box of boxes) {
      const shown = box.scope ? null : onTop(box.node);
      const is = {
        later: box.scope ? !whole && !back && box.ranAt > at : !ran(shown),
        known: box.scope ? all || box.knownAt <= upTo : known(shown),
        active: box.id === active,
        chosen: box.id === picked,
        marked: !box.scope && (all ? marked.has(leaderOf(shown).id) : marked.has(shown.id)),
      };
      for (const [name, on] of Object.entries(is)) box.element.classList.toggle(name, on);
      if (is.active) box.element.setAttribute("aria-current", "step");
      else box.element.removeAttribute("aria-current");
      if (box.cell) showCopy(box.cell, all || !is.known ? null : shown);
    }
    for (const line of lines) {
      const own = all ? line.edges : line.edges.filter((edge) => onTop(nodes[edge.target]).id === edge.target);
      const sent = own.filter((edge) => edge.sent !== undefined && (all || (back && stepOf.backward.get(edge.target) <= upTo)));
      const is = {
        lit: own.some((edge) => edge.target === step.node && (!back || edge.sent !== undefined)),
        known: line.node ? known(onTop(line.node)) : sent.length > 0,
        later: step.phase === "forward" && own.every((edge) => stepOf.forward.get(edge.target) > at),
      };
      for (const [name, on] of Object.entries(is)) line.element.classList.toggle(name, on);
      if (line.edges.length > 1) gradeLine(line, all ? null : sent[0]);
    }
  }
  // The gradient of one copy in place of the range of all.
  function showCopy({ ground, text, bin, said }, copy) {
    const now = copy ? `bin${copy.bin}` : bin;
    ground.setAttribute("class", `cell ${now}`);
    text.setAttribute("class", `on ${now}`);
    text.textContent = copy ? `${stateOf(copy).glyph} ${sizeText(sizeAt(copy))}` : said;
  }
  function gradeLine({ grade, colours }, edge) {
    grade.forEach((one, i) => {
      const own = edge && edge.bin < ALARM ? colours[i].replace(/line\d/g, `line${edge.bin}`) : colours[i];
      one.setAttribute("class", own);
    });
  }
  const find = (id) => boxes.find((box) => box.id === id);
  return { told, drawing, boxes, light, find, boxFor: (node) => find(boxIdOf(node, told)) };
}
