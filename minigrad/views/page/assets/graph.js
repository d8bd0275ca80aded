// ---------------------------------------------------------------- the graph: what of the picture is in view, lit by the step

const READABLE = 0.6; // the scale below which a picture is not opened further
const FAR = 0.3; // the scale below which boxes are plain rectangles
const MARGIN = 160; // pixels around the view that are drawn too

function Graph(canvas, map, afar, actions) {
  let picture;
  let drawing;
  let layers;
  let view;
  let scale = 1;
  let fitted = true;
  let marked = new Set();
  let focused = null;
  let whole = false;
  const minimap = Minimap(map, (x, y) => scrollTo({ x, y }, "auto"));

  // ------------------------------------------------------------ drawing what is in view

  function draw(open) {
    const held = document.activeElement && canvas.contains(document.activeElement) ? focused : null;
    picture = arrange(open);
    minimap.of(picture);
    drawing = svg("svg", {
      class: "drawing",
      viewBox: `0 0 ${Math.ceil(picture.width)} ${Math.ceil(picture.height)}`,
      role: "group",
      "aria-label": "Computation graph; arrow keys up and down move from box to box",
    });
    const arrow = (id) =>
      svg(
        "marker",
        {
          id,
          viewBox: "0 0 8 8",
          refX: 6.5,
          refY: 4,
          markerWidth: 7,
          markerHeight: 7,
          markerUnits: "userSpaceOnUse",
          orient: "auto-start-reverse",
        },
        svg("path", { d: "M0 .8 7 4 0 7.2Z" }),
      );
    layers = { frames: svg("g", {}), lines: svg("g", {}), boxes: svg("g", {}) };
    drawing.append(
      svg("defs", {}, arrow("arrow"), arrow("arrow-forward"), arrow("arrow-backward")),
      ...Object.values(layers),
    );
    for (const box of picture.boxes)
      Object.assign(box, {
        left: box.x - box.width / 2,
        right: box.x + box.width / 2,
        top: box.y - box.height / 2,
        bottom: box.y + box.height / 2,
      });
    canvas.replaceChildren(drawing);
    if (fitted) fit();
    else zoom(scale);
    if (held) focus(picture.boxes.find((box) => box.key === held));
  }
  const items = () => [...picture.boxes, ...picture.lines];
  function inView() {
    const [frame, place] = [canvas.getBoundingClientRect(), drawing.getBoundingClientRect()];
    const [left, top] = [(frame.left - place.left) / scale, (frame.top - place.top) / scale];
    return { left, top, right: left + canvas.clientWidth / scale, bottom: top + canvas.clientHeight / scale };
  }
  // Adds what has come into view, takes away what has left it. From afar there are plain rectangles instead.
  function cull() {
    if (!view) return;
    const seen = inView();
    const margin = MARGIN / scale;
    const far = scale < FAR && !whole;
    const inside = (item) =>
      whole ||
      (!far &&
        item.right > seen.left - margin &&
        item.left < seen.right + margin &&
        item.bottom > seen.top - margin &&
        item.top < seen.bottom + margin);
    for (const item of items()) {
      const now = inside(item) || Boolean(item.group && item.group.contains(document.activeElement));
      if (now === Boolean(item.shown)) continue;
      item.shown = now;
      if (now) attach(item);
      else item.group.remove();
    }
    const clipped = {
      left: Math.max(0, seen.left),
      top: Math.max(0, seen.top),
      right: Math.min(picture.width, seen.right),
      bottom: Math.min(picture.height, seen.bottom),
    };
    afar.hidden = !far;
    if (far) paintAfar(seen);
    minimap.show(
      clipped.right - clipped.left < picture.width - 2 || clipped.bottom - clipped.top < picture.height - 2,
      clipped,
      colourName,
    );
    rove();
  }
  function paintAfar(seen) {
    const pen = sharpPen(afar, canvas.clientWidth, canvas.clientHeight);
    pen.scale(scale, scale);
    pen.translate(-seen.left, -seen.top);
    paintPlainly(pen, picture, colourName, 2 / scale, picture.lines);
  }
  function attach(item) {
    if (!item.group)
      item.group = item.wires
        ? drawLine(item)
        : item.node
          ? drawNode(item, actions)
          : drawScope(item, actions);
    dress(item);
    (item.wires ? layers.lines : item.layout ? layers.frames : layers.boxes).append(item.group);
  }
  let waiting = false;
  function later() {
    if (!waiting)
      requestAnimationFrame(() => {
        waiting = false;
        cull();
      });
    waiting = true;
  }

  // ------------------------------------------------------------ what a step changes

  function light(state, open) {
    const { at } = state;
    const step = steps[at];
    const all = step.phase === "overview";
    const back = step.phase === "backward";
    const chosenKey = state.chosen === null ? null : visible(nodes[state.chosen], open);
    view = {
      at,
      step,
      all,
      back,
      chosenKey,
      ran: (node) => all || back || !node.op || (stepOf.forward.get(node.id) ?? Infinity) <= at,
      known: (node) => node.gradient !== undefined && (all || node.knownAt <= at),
      active: step.node === undefined ? null : visible(nodes[step.node], open),
    };
    for (const item of items()) if (item.shown) dress(item);
    follow(picture.boxes.find((box) => box.key === (chosenKey ?? view.active)));
    cull();
  }
  const known = (node) => view.known(node);
  const ran = (node) => view.ran(node);
  // Classes, and what is drawn anew; only where something has changed.
  function dress(item) {
    const [look, key] = item.wires ? lineLook(item) : item.node ? nodeLook(item) : scopeLook(item);
    if (item.key_ !== key) item.redo(view);
    item.key_ = key;
    const classes = item.wires ? `${look} ${item.grade}` : look;
    if (item.look !== classes) item.group.setAttribute("class", classes);
    item.look = classes;
    if (!item.wires && !item.layout) {
      if (item.key === view.active) item.group.setAttribute("aria-current", "step");
      else item.group.removeAttribute("aria-current");
    }
  }
  const phase = () => (view.all ? "" : view.step.phase);
  function nodeLook({ node, key }) {
    const shown = onTop(node);
    const seen = isCopied(node) ? node.copies.filter(known).length : Number(known(node));
    const is = [
      node.kind,
      isLoss(node) && "loss",
      !ran(shown) && "later",
      key === view.active && "active",
      key === view.chosenKey && "chosen",
      marked.has(view.all ? leaderOf(shown.id).id : shown.id) && "marked",
      faulty(view.all ? node.copies : [shown]) && "faulty",
    ];
    return [["node", phase(), ...is].filter(Boolean).join(" "), `${shown.id} ${view.all} ${seen}`];
  }
  function scopeLook(box) {
    const { scope, layout, key } = box;
    const inside = layout ? [] : nodesIn(scope);
    const is = [
      layout ? "open" : "closed",
      folds[scope] && "fold",
      inside.length && !inside.some((node) => ran(onTop(node))) && "later",
      key === view.active && "active",
      key === view.chosenKey && "chosen",
      inside.some((node) => faulty(node.copies)) && "faulty",
    ];
    return [
      ["scope", phase(), ...is].filter(Boolean).join(" "),
      layout ? `${copyOnTop.get(scope)} ${view.all}` : `${view.at} ${key === view.active}`,
    ];
  }
  function lineLook(line) {
    const { step, all, back, at } = view;
    const edges_ = line.wires.map(edgeOnTop);
    const own = all ? line.wires.flatMap((wire) => wire.edges) : edges_;
    const lit =
      step.node !== undefined &&
      edges_.some((edge) => edge.target === step.node && (!back || edge.sent !== undefined));
    const sent =
      (all || back) &&
      own.some((edge) => edge.sent !== undefined && (all || stepOf.backward.get(edge.target) <= at));
    const waits = step.phase === "forward" && edges_.every((edge) => stepOf.forward.get(edge.target) > at);
    return [
      ["line", phase(), lit && "lit", sent && "sent", waits && "later"].filter(Boolean).join(" "),
      `${all} ${edges_.map((edge) => edge.id)}`,
    ];
  }
  function colourName(box) {
    if (box.key === view.active || box.key === view.chosenKey) return "accent";
    if (box.layout) return "scope-line";
    const own = (box.node ? box.node.copies : nodesIn(box.scope)).filter(known);
    return own.length ? (binOf(own) === ALARM ? "alarm" : `bin${binOf(own)}`) : "line";
  }
  // Marks nodes: that of a symbol in the panel, or a way through the graph.
  function mark(ids) {
    marked = new Set(ids.map((id) => (view.all ? leaderOf(id).id : id)));
    for (const box of picture.boxes) if (box.shown && box.node) dress(box);
  }

  // ------------------------------------------------------------ scale and place

  function resize(to) {
    scale = Math.max(0.002, Math.min(2.5, to));
    drawing.setAttribute("width", picture.width * scale);
    drawing.setAttribute("height", picture.height * scale);
  }
  // Changes the scale, and keeps what is at a point of the window, or in the middle, where it is.
  function zoom(to, point) {
    const frame = canvas.getBoundingClientRect();
    const { x, y } = point || {
      x: frame.left + canvas.clientWidth / 2,
      y: frame.top + canvas.clientHeight / 2,
    };
    const before = drawing.getBoundingClientRect();
    const [px, py] = [(x - before.left) / scale, (y - before.top) / scale];
    resize(to);
    const after = drawing.getBoundingClientRect();
    canvas.scrollBy({
      left: after.left + px * scale - x,
      top: after.top + py * scale - y,
      behavior: "instant",
    });
    cull();
  }
  const whole_ = (made = picture) =>
    Math.min((canvas.clientWidth - 8) / made.width, (canvas.clientHeight - 8) / made.height);
  function fit() {
    fitted = true;
    resize(Math.min(1.15, whole_()));
    cull();
  }
  // All of it if that can be read; or else its width, or a size that can be read, from the top.
  function start() {
    if (whole_() >= READABLE * 0.95) {
      fit();
      return;
    }
    fitted = false;
    resize(Math.max(READABLE, Math.min(0.85, (canvas.clientWidth - 8) / picture.width)));
    canvas.scrollTo({ left: (picture.width * scale - canvas.clientWidth) / 2, top: 0, behavior: "instant" });
    cull();
  }
  function scrollTo({ x, y }, behavior) {
    const place = drawing.getBoundingClientRect();
    const frame = canvas.getBoundingClientRect();
    const [left, top] = [
      place.left - frame.left + canvas.scrollLeft,
      place.top - frame.top + canvas.scrollTop,
    ];
    canvas.scrollTo({
      left: left + x * scale - canvas.clientWidth / 2,
      top: top + y * scale - canvas.clientHeight / 2,
      behavior,
    });
  }
  // Brings a box into view, when it is not well within it.
  function follow(box) {
    if (!box) return;
    const seen = inView();
    const off = (p, from, to) => p < from + (to - from) * 0.15 || p > to - (to - from) * 0.15;
    const [across, down] = [off(box.x, seen.left, seen.right), off(box.y, seen.top, seen.bottom)];
    if (!across && !down) return;
    const to = {
      x: across ? box.x : (seen.left + seen.right) / 2,
      y: down ? box.y : (seen.top + seen.bottom) / 2,
    };
    scrollTo(
      to,
      calm() || Math.hypot(to.x - seen.left, to.y - seen.top) * scale > 3000 ? "instant" : "smooth",
    );
  }

  // ------------------------------------------------------------ keyboard: one box has the focus, arrows move it

  const handle = (box) => (box.scope === undefined ? box.group : box.group.querySelector(".head"));
  function focus(box) {
    if (!box) return;
    focused = box.key;
    if (!box.shown) {
      follow(box);
      box.shown = true;
      attach(box);
    }
    handle(box).focus({ preventScroll: true });
    follow(box);
  }
  // The one box that Tab reaches.
  function rove() {
    const drawn_ = picture.boxes.filter((box) => box.shown);
    const stop =
      drawn_.find((box) => box.key === focused) || drawn_.find((box) => box.key === view.active) || drawn_[0];
    for (const old of canvas.querySelectorAll("[tabindex='0']")) old.setAttribute("tabindex", -1);
    if (stop) handle(stop).setAttribute("tabindex", 0);
  }
  canvas.addEventListener("focusin", (event) => {
    const box = picture.boxes.find((one) => one.shown && handle(one) === event.target);
    if (box) focused = box.key;
  });
  canvas.addEventListener("keydown", (event) => {
    const at = picture.boxes.findIndex((box) => box.shown && handle(box) === event.target);
    const box = picture.boxes[at];
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 }[event.key];
    if (!box || event.ctrlKey || event.altKey || event.metaKey) return;
    if (to !== undefined) focus(picture.boxes[Math.max(0, Math.min(picture.boxes.length - 1, to))]);
    else if (event.key === "Enter" || event.key === " ") {
      if (box.scope === undefined) actions.choose(onTop(box.node).id);
      else actions.toggle(box.scope);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });

  // ------------------------------------------------------------ pointer, window, printer

  canvas.addEventListener("click", (event) => {
    // on a plain rectangle
    if (event.target !== drawing || afar.hidden) return;
    const place = drawing.getBoundingClientRect();
    const [x, y] = [(event.clientX - place.left) / scale, (event.clientY - place.top) / scale];
    const box = picture.boxes.findLast(
      (one) => x > one.left && x < one.right && y > one.top && y < one.bottom,
    );
    if (box && box.node) actions.choose(onTop(box.node).id);
    else if (box) actions.toggle(box.scope);
  });
  const by = (factor) => () => {
    fitted = false;
    zoom(scale * factor);
  };
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      fitted = false;
      zoom(scale * (event.deltaY < 0 ? 1.1 : 1 / 1.1), { x: event.clientX, y: event.clientY });
    },
    { passive: false },
  );
  canvas.addEventListener("scroll", later);
  dragging(canvas);
  new ResizeObserver(() => {
    if (picture && fitted) fit();
    else if (picture) later();
  }).observe(canvas);
  function print(on) {
    // on paper all of it
    whole = on;
    cull();
  }
  // Whether a set of open scopes can be read whole.
  const fits = (open) => whole_(arrange(open)) >= READABLE;
  return { draw, light, mark, fit, start, fits, print, focus, larger: by(1.2), smaller: by(1 / 1.2) };
}

function dragging(canvas) {
  let from = null;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType !== "mouse") return;
    from = { x: event.clientX + canvas.scrollLeft, y: event.clientY + canvas.scrollTop };
  });
  window.addEventListener("pointermove", (event) => {
    if (!from || !event.buttons) return;
    canvas.scrollTo({ left: from.x - event.clientX, top: from.y - event.clientY, behavior: "instant" });
  });
  window.addEventListener("pointerup", () => {
    from = null;
  });
}
