// ---------------------------------------------------------------- the picture as plain rectangles: small, or from afar

// `colourName` says the colour of a box; each rectangle has two pixels at least, `dot` in the picture's units.
function paintPlainly(pen, picture, colourName, dot, lines) {
  const style = getComputedStyle(document.documentElement);
  const known = new Map();
  const colour = (name) =>
    known.get(name) || known.set(name, style.getPropertyValue(`--${name}`).trim()).get(name);
  const rectangle = (box) => {
    pen.fillStyle = colour(colourName(box));
    pen.fillRect(
      box.x - box.width / 2,
      box.y - box.height / 2,
      Math.max(box.width, dot),
      Math.max(box.height, dot),
    );
  };
  picture.boxes.filter((box) => box.layout).forEach(rectangle);
  if (lines) {
    pen.strokeStyle = colour("line");
    pen.lineWidth = dot / 2;
    pen.beginPath();
    for (const line of lines)
      line.points.forEach((p, i) => (i ? pen.lineTo(p.x, p.y) : pen.moveTo(p.x, p.y)));
    pen.stroke();
  }
  picture.boxes.filter((box) => !box.layout).forEach(rectangle);
  return colour;
}
// A canvas of so many pixels of the page, sharp on every screen.
function sharpPen(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  Object.assign(canvas, { width: width * ratio, height: height * ratio });
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return pen;
}

// All of the picture, and which part is in view.
function Minimap(canvas, move) {
  let picture = null;
  function draw(seen, colourName) {
    const scale = Math.min(
      Math.min(150, canvas.parentElement.clientWidth / 5) / picture.width,
      120 / picture.height,
    );
    const pen = sharpPen(canvas, Math.max(16, picture.width * scale), Math.max(16, picture.height * scale));
    pen.scale(scale, scale);
    const colour = paintPlainly(pen, picture, colourName, 2 / scale);
    pen.strokeStyle = colour("ink");
    pen.lineWidth = 1.5 / scale;
    pen.strokeRect(seen.left, seen.top, seen.right - seen.left, seen.bottom - seen.top);
  }
  const go = (event) => {
    const frame = canvas.getBoundingClientRect();
    move(
      ((event.clientX - frame.left) / frame.width) * picture.width,
      ((event.clientY - frame.top) / frame.height) * picture.height,
    );
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    go(event);
  });
  canvas.addEventListener("pointermove", (event) => event.buttons && go(event));
  return {
    of: (made) => {
      picture = made;
    },
    show: (needed, seen, colourName) => {
      canvas.hidden = !needed;
      if (needed) draw(seen, colourName);
    },
  };
}
