// ---------------------------------------------------------------- colours of cells, and the ranges they span

// Stops from the middle outwards; gradients diverge from zero, values run from their least to their greatest.
const RAMPS = {
  light: {
    below: ["#f3f2ee", "#86b3d9", "#174f8a"],
    above: ["#f3f2ee", "#eda36f", "#9c3a05"],
    value: ["#f5f4f9", "#9d93cd", "#36266f"],
    hatch: "#8a8f99",
    hole: "#eceef1",
    alarm: "#b3261e",
    mark: "#111",
  },
  dark: {
    below: ["#20252d", "#3f81b9", "#b3dafa"],
    above: ["#20252d", "#c06a31", "#ffd3a6"],
    value: ["#20222c", "#6a5db1", "#ddd7ff"],
    hatch: "#6b7482",
    hole: "#191d24",
    alarm: "#f058f8",
    mark: "#fff",
  },
};
const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
const SHADES = 120; // of a ramp, each made once
const shades = new Map();
function between(stops, t) {
  if (!shades.has(stops)) {
    shades.set(
      stops,
      count(SHADES + 1).map((k) => {
        const place = (k / SHADES) * (stops.length - 1);
        const i = Math.min(stops.length - 2, Math.floor(place));
        const [a, b] = [channels(stops[i]), channels(stops[i + 1])];
        return `rgb(${a.map((x, c) => Math.round(x + (b[c] - x) * (place - i))).join(",")})`;
      }),
    );
  }
  return shades.get(stops)[Math.round(Math.min(1, Math.max(0, t)) * SHADES)];
}
const ramps = () => RAMPS[document.documentElement.dataset.theme];
function colourOf(x, kind, low, high) {
  const ramp = ramps();
  if (kind === "gradient") {
    const size = Math.max(Math.abs(low), Math.abs(high)) || 1;
    return between(x < 0 ? ramp.below : ramp.above, Math.abs(x) / size);
  }
  return between(ramp.value, high > low ? (x - low) / (high - low) : 0.5);
}
// The range of what is finite: the least and the largest of an array may be infinite, where a mask is.
const rangeOf = ({ range, min, max }) => range || [min ?? 0, max ?? 0];
