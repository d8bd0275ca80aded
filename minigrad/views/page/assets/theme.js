// ---------------------------------------------------------------- light and dark

const system = matchMedia("(prefers-color-scheme: dark)");
let wanted = "auto";
function paint(only) {
  const theme = only || (wanted !== "auto" ? wanted : system.matches ? "dark" : "light");
  const { dataset } = document.documentElement;
  byId("theme").textContent = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" }[wanted];
  if (dataset.theme === theme) return;
  dataset.theme = theme;
  document.querySelectorAll("canvas, .paints").forEach((one) => one.repaint && one.repaint());
}
function nextTheme() {
  const other = system.matches ? ["light", "dark"] : ["dark", "light"]; // than the system's, then its own
  wanted = { auto: other[0], [other[0]]: other[1], [other[1]]: "auto" }[wanted];
  paint();
}
// As properties, so that there is one of each when a page is drawn anew.
system.onchange = () => paint();
window.onbeforeprint = () => paint("light");
window.onafterprint = () => paint();
