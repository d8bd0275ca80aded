// ---------------------------------------------------------------- the timeline: a tick for each step, the backward ones in their gradients' colours

function Timeline(canvas) {
  const GAP = 9; // between forward and backward
  let at = 0;
  let painted = 0; // pixels across
  // How a tick is coloured: worse is drawn over better where several share a pixel.
  const tickOf = ({ node, phase }) => {
    const { broken, bin } = nodes[node];
    if (phase === "forward" ? broken : bin === ALARM) return { name: "alarm", worse: 99 };
    if (phase === "forward") return { name: "accent", worse: 0 };
    if (bin === undefined) return { name: "faint", worse: -1 }; // in one of two runs alone
    return { name: `bin${bin}`, worse: bin };
  };
  const ticks = steps.slice(1).map(tickOf);
  const forward = record.forward.length;
  // Of tick i, left and width.
  function place(i, width) {
    const each = (width - (forward < ticks.length ? GAP : 0)) / Math.max(1, ticks.length);
    return [i * each + (i >= forward ? GAP : 0), each];
  }
  function paint() {
    const width = (painted = canvas.clientWidth);
    const height = canvas.clientHeight;
    const ratio = window.devicePixelRatio || 1;
    if (!width) return;
    Object.assign(canvas, { width: width * ratio, height: height * ratio });
    const pen = canvas.getContext("2d");
    const columns = new Map();
    pen.scale(ratio, ratio);
    ticks.forEach((tick, i) => {
      const [left, each] = place(i, width);
      const column = each < 1 ? Math.floor(left) : left;
      const known = columns.get(column);
      if (!known || tick.worse >= known.worse || i + 1 === at)
        columns.set(column, { ...tick, i, each: Math.max(1, each - (each > 4 ? 2 : 0)) });
    });
    for (const [left, { name, i, each }] of columns) {
      pen.globalAlpha = at === 0 || i < at || name === "alarm" ? 0.85 : 0.3;
      pen.fillStyle = colour(name);
      pen.fillRect(left, 4, each, height - 8);
    }
    if (at > 0) {
      const [left, each] = place(at - 1, width);
      pen.globalAlpha = 1;
      pen.strokeStyle = colour("ink");
      pen.lineWidth = 2;
      pen.strokeRect(left - 2, 1, Math.max(3, each - 2) + 4, height - 2);
    }
  }
  canvas.repaint = paint;
  new ResizeObserver(() => canvas.clientWidth !== painted && paint()).observe(canvas);
  return (step) => {
    at = step;
    paint();
  };
}
