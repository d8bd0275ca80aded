// The live page: what is changed here, the program runs again, and the page is shown anew.

function live(first) {
  let page = null;
  let waiting = false;
  const pristine = [...document.body.children].filter((one) => one.localName !== "script").map((one) => one.cloneNode(true));
  const bar = document.createElement("section");
  bar.className = "play-bar";

  async function ask(question) {
    if (waiting) return;
    waiting = true;
    bar.classList.add("busy");
    const start = performance.now();
    const answer = await fetch("ask", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) })
      .then((found) => (found.ok ? found.json() : { error: `the server refused this (${found.status})` }))
      .catch(() => ({ error: "the program that serves this page has ended" }));
    waiting = false;
    bar.classList.remove("busy");
    if (answer.error) return say(answer.error);
    if (!answer.record) return answer.ledgers;
    show(answer, page.keep());
    bar.dataset.took = Math.round(performance.now() - start);
  }
  function say(text) {
    const status = bar.querySelector(".play-status");
    status.textContent = text;
    status.classList.add("wrong");
    status.setAttribute("role", "alert");
  }
  function show(shown, keep) {
    page?.end();
    for (const one of [...document.body.children]) if (one.localName !== "script") one.remove();
    document.body.prepend(...pristine.map((one) => one.cloneNode(true)));
    document.querySelector("main").before(bar);
    window.onPanel = decorate;
    window.askWhy = ask;
    page = showPage(shown, keep);
    page.renderPanel(); // now that it can be decorated
    fillBar(shown.play);
  }

  // ---------------------------------------------------------------- the bar

  function field(value, change, kind = "") {
    const input = page.el(`input ${kind}`, { value });
    input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") change(input.value);
    });
    return input;
  }
  function fillBar({ changes, arguments: given, milliseconds }) {
    const { el, button } = page;
    const lr = field("0.1", (value) => ask({ do: "step", lr: value }));
    bar.replaceChildren(
      ...given.map(([name, text]) => el("label", `${name} `, field(text, (value) => ask({ do: "argument", name, value }), Number.isNaN(Number(text)) ? "text" : ""))),
      el("label", button("Step", () => ask({ do: "step", lr: lr.value }), { title: "Parameters move against their gradients" }), " lr ", lr),
      button("Undo", () => ask({ do: "undo" }), { disabled: !changes.length, title: "Ctrl+Z" }), button("Reset", () => ask({ do: "reset" }), { disabled: !changes.length }),
      el("ul.play-changes", changes.map((text) => el("li", text))),
      el("span.play-status", changes.length ? `ran in ${milliseconds} ms` : "click an entry of a value, or an attention weight, to change it"));
  }

  // ---------------------------------------------------------------- the panel

  function decorate(panel, entry) {
    if (!page) return;
    const { el, button } = page;
    for (const canvas of panel.querySelectorAll('[data-entry] canvas, [data-kind="value"][data-of] canvas')) {
      canvas.classList.add("editable");
      canvas.addEventListener("click", () => pick(canvas, panel));
    }
    if (panel.dataset.tab !== "step" || !entry) return;
    const settings = Object.entries(entry.settings).filter(([, text]) => text !== "" && Number.isFinite(Number(text)));
    const acts = el("div.play-acts",
      button("Set to 0", () => ask({ do: "cut", entry: entry.id })),
      [...new Set(entry.into.map((edge) => edge.input))].map((input) => button(`Cut ${input}`, () => ask({ do: "cut", entry: entry.id, input }))),
      settings.map(([name, text]) => el("label", `${name} `, field(text, (value) => ask({ do: "setting", entry: entry.id, name, value })))));
    (panel.querySelector(".step-head") || panel.firstElementChild).after(acts);
    panel.querySelectorAll(".single").forEach((one) => {
      const { entry: id } = one.closest("figure").dataset;
      if (id !== undefined) one.replaceChildren(field(one.textContent, (value) => ask({ do: "set", entry: Number(id), flat: 0, value })));
    });
  }
  // The entry of a heat map that was clicked: a field for its value.
  function pick(canvas, panel) {
    const figure = canvas.closest("figure");
    const id = Number(figure.dataset.entry ?? figure.dataset.of);
    const { array, index } = canvas.cellAt();
    if (!array) return;
    const flat = index.reduce((sum, i, axis) => sum * array.shape[axis] + i, 0);
    panel.querySelector(".play-edit")?.remove();
    const input = field(canvas.valueAt(), (value) => ask({ do: "set", entry: id, flat, value }));
    figure.append(page.el("div.play-acts.play-edit", `[${index.join(", ")}] = `, input, page.button("Set", () => ask({ do: "set", entry: id, flat, value: input.value }))));
    input.focus();
    input.select();
  }
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || event.target.localName === "input") return;
    event.preventDefault();
    ask({ do: "undo" });
  });
  show(first);
}
