// The page as a whole: its head, its tabs on a phone, its keys.

const PANES = ["source", "graph", "detail"];
const KEYS = [["/", "search"], ["j k", "next, previous kernel"], ["b", "before and after: jax.jit, stitched"], ["t", "shares of bytes or of time"], ["f", "fold layers that repeat"], ["0 + -", "all of the graph, nearer, farther"], ["arrows", "on the graph: along its edges"], ["esc", "choose nothing"], ["?", "this list"]];

function showPane(name) {
  state.pane = name;
  for (const pane of PANES) byId(pane).classList.toggle("shown", pane === name);
  for (const button of byId("tabs").children) button.setAttribute("aria-selected", String(button.dataset.pane === name));
}

function drawHead() {
  byId("title").replaceChildren(D.function, " ", el("small", {}, `on ${D.device.about}`));
  byId("verdict").textContent = D.verdict;
  const [before, after] = D.totals;
  const figure = (value, label, good) => el("div", { class: "figure" }, el("b", { class: good ? "good" : "" }, value), el("span", {}, label));
  const arrow = (a, b) => (a === b ? a : `${a} → ${b}`);
  byId("figures").replaceChildren(
    figure(arrow(formatCount(before.launches), formatCount(after.launches)), "launches", after.launches < before.launches),
    figure(arrow(formatBytes(before.bytes), formatBytes(after.bytes)), "bytes", after.bytes < 0.98 * before.bytes),
    figure(arrow(formatRatio(before.bytes, D.bound), formatRatio(after.bytes, D.bound)), "of the bound", after.bytes < 0.98 * before.bytes),
    figure(arrow(formatSeconds(before.seconds), formatSeconds(after.seconds)), "predicted", after.seconds < 0.98 * before.seconds),
  );
}

function drawChoices() {
  const choice = (label, pressed, action, title) => el("button", { type: "button", "aria-pressed": String(pressed), title, on: { click: action } }, label);
  byId("colouring").replaceChildren(...D.programs.map((program, p) => choice(program.name, state.program === p, () => show(p), `Colours: kernels of ${program.name} (b)`)));
  byId("measure").replaceChildren(...[["seconds", "time"], ["bytes", "bytes"]].map(([name, label]) => choice(label, state.measure === name, () => measure(name), `Shares of lines: ${label} (t)`)));
}

function measure(name) {
  state.measure = name;
  changed("measure");
}

function step(by) {
  const order = [...D.programs[state.program].kernels].sort((a, b) => b.seconds - a.seconds);
  const at = state.selected && state.selected.kind === "kernel" ? order.findIndex((k) => k.number === state.selected.id) : -1;
  const next = order[(at + by + order.length) % order.length] || order[0];
  if (next) select({ kind: "kernel", program: state.program, id: next.number });
}

function help() {
  const dialog = byId("help");
  dialog.replaceChildren(el("h2", {}, "Keys"), el("dl", { class: "facts" }, KEYS.map(([keys, what]) => fact(el("kbd", {}, keys), what))), el("form", { method: "dialog" }, el("button", { class: "chip" }, "close")));
  dialog.open ? dialog.close() : dialog.showModal();
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const actions = {
    "/": () => byId("search").focus(), j: () => step(1), k: () => step(-1), b: () => show((state.program + 1) % D.programs.length),
    t: () => measure(state.measure === "bytes" ? "seconds" : "bytes"), f: () => fold(), 0: () => fit(), Escape: () => select(null), "?": help,
    "+": () => d3.select(byId("canvas")).call(graph.zoom.scaleBy, 1.4), "-": () => d3.select(byId("canvas")).call(graph.zoom.scaleBy, 1 / 1.4),
  };
  if (!actions[event.key] || (event.key === "Escape" && byId("help").open)) return;
  event.preventDefault();
  actions[event.key]();
}

function start() {
  index();
  document.body.classList.add("ready");
  drawHead();
  onChange(drawChoices);
  byId("tabs").append(...PANES.map((pane) => el("button", { type: "button", role: "tab", "data-pane": pane, on: { click: () => showPane(pane) } }, pane[0].toUpperCase() + pane.slice(1))));
  showPane(state.pane);
  state.selected = readAddress();
  for (const part of [startSource, startGraph, startDetail, startSearch, startTables, drawChoices]) part();
  if (state.selected) changed("selected");
  window.addEventListener("popstate", () => { // back, forward, or another address typed in
    const selected = readAddress();
    changed("program");
    select(selected, { address: false });
  });
  document.addEventListener("keydown", keys);
  byId("help-button").addEventListener("click", help);
  // For tests, and for whoever wants to script the page.
  window.plan = { data: D, state, select, placeOf, viewOf: () => viewOf(state.folded), painted: performance.now() };
}

/** Where an operation's box is in the window. */
function placeOf(i) {
  const view = viewOf(state.folded), n = view.of[i], box = byId("canvas").getBoundingClientRect();
  const [x, y] = graph.transform.apply([view.x[n], view.y[n]]);
  return { x: box.left + x, y: box.top + y, inside: x > 0 && y > 0 && x < box.width && y < box.height };
}

unpack().then((data) => { D = data; start(); }).catch((error) => {
  byId("summary").prepend(el("p", { class: "bad" }, `The interactive page could not start: ${error.message}`));
  throw error;
});
