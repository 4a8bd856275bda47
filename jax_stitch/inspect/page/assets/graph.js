// The graph's pane: zoom, hover, click, and the keys that walk along its edges.

const graph = { transform: d3.zoomIdentity, hovered: -1, waiting: false, zoom: null };

function startGraph() {
  const canvas = byId("canvas");
  graph.zoom = d3.zoom().scaleExtent([0.01, 4]).on("zoom", (event) => {
    graph.transform = event.transform;
    repaint();
  });
  d3.select(canvas).call(graph.zoom).on("dblclick.zoom", null);
  canvas.addEventListener("pointermove", (event) => hover(nodeAt(event), event));
  canvas.addEventListener("pointerleave", () => hover(-1));
  canvas.addEventListener("click", (event) => choose(nodeAt(event)));
  byId("graph").addEventListener("keydown", walk);
  new ResizeObserver(resize).observe(byId("graph"));
  dark.addEventListener("change", () => changed("program"));
  const tool = (label, title, action) => el("button", { type: "button", title, on: { click: action } }, label);
  byId("graph-tools").append(
    D.groups ? el("button", { type: "button", id: "fold", title: "Layers that repeat as one (f)", on: { click: fold } }, "fold layers") : "",
    tool("fit", "All of it (0)", () => fit()),
    tool("+", "Nearer (+)", () => d3.select(canvas).call(graph.zoom.scaleBy, 1.5)),
    tool("−", "Farther (-)", () => d3.select(canvas).call(graph.zoom.scaleBy, 1 / 1.5)),
  );
  state.folded = Boolean(D.groups);
  onChange((what) => {
    if (what === "selected") fitSelection();
    labelGraph();
    repaint();
  });
  resize();
  labelGraph();
  move(everything(), 0, 0.5, 1.1);
}

function labelGraph() {
  const view = viewOf(state.folded);
  if (byId("fold")) byId("fold").setAttribute("aria-pressed", String(state.folded));
  const shown = many(view.x.length, "box", "boxes");
  const all = view.name === "folded" ? `${shown} for ${many(opCount(), "operation")}` : many(opCount(), "operation");
  const note = `${all}. A band of colour is a kernel (${D.programs[state.program].name}); thin lines go through memory.`;
  byId("graph-note").replaceChildren(el("span", {}, note));
}

function resize() {
  const canvas = byId("canvas"), ratio = window.devicePixelRatio || 1;
  const first = canvas.width <= 1;
  canvas.width = Math.max(1, Math.round(canvas.clientWidth * ratio));
  canvas.height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if ((first || graph.unfitted) && canvas.width > 1) {
    graph.unfitted = false;
    state.selected ? fitSelection(0) : move(everything(), 0, 0.5, 1.1);
  }
  repaint();
}

function repaint() {
  if (graph.waiting) return;
  graph.waiting = true;
  requestAnimationFrame(() => {
    graph.waiting = false;
    paint(byId("canvas"), graph.transform, viewOf(state.folded), state.program, chosenNodes(), graph.hovered);
  });
}

function chosenNodes() {
  if (!state.selected) return null;
  const { of } = viewOf(state.folded);
  return new Set(selectedOps().map((i) => of[i]));
}

function nodeAt(event) {
  const canvas = byId("canvas"), box = canvas.getBoundingClientRect(), view = viewOf(state.folded);
  const [x, y] = graph.transform.invert([event.clientX - box.left, event.clientY - box.top]);
  const slack = Math.max(0, 4 / graph.transform.k);
  for (let n = view.x.length - 1; n >= 0; n--)
    if (Math.abs(view.x[n] - x) <= BOX.width / 2 + slack && Math.abs(view.y[n] - y) <= BOX.height / 2 + slack) return n;
  return -1;
}

function hover(n, event) {
  if (n !== graph.hovered) {
    graph.hovered = n;
    byId("canvas").style.cursor = n < 0 ? "grab" : "pointer";
    repaint();
  }
  const tip = byId("tip");
  tip.hidden = n < 0;
  if (n < 0 || !event) return;
  const view = viewOf(state.folded), i = view.members[n][0], kernel = colouring(view, state.program).kernel[n];
  tip.replaceChildren(
    el("b", {}, view.label[n], view.times[n] > 1 ? ` x ${view.times[n]}` : ""), " ", el("span", { class: "soft" }, text(D.ops.type[i])),
    el("div", {}, kernel ? [swatch(kernel), kernel.title] : "no kernel's work"),
    D.ops.file[i] >= 0 ? el("div", { class: "soft" }, lineName(D.ops.file[i], D.ops.line[i])) : "",
  );
  const box = byId("graph").getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX - box.left + 12, box.width - Math.min(tip.offsetWidth, box.width) - 4)}px`;
  tip.style.top = `${Math.min(event.clientY - box.top + 14, box.height - tip.offsetHeight - 4)}px`;
}

/** The first click on a box chooses its kernel, the next one itself. */
function choose(n) {
  if (n < 0) return select(null);
  const view = viewOf(state.folded), kernel = colouring(view, state.program).kernel[n], chosen = state.selected;
  const here = kernel && chosen && chosen.kind === "kernel" && chosen.program === state.program && chosen.id === kernel.number;
  if (kernel && !here) select({ kind: "kernel", program: state.program, id: kernel.number }, { focus: false });
  else select(nodeSelection(view, n), { focus: false });
}

const nodeSelection = (view, n) => (view.members[n].length > 1 ? { kind: "group", id: n } : { kind: "op", id: view.members[n][0] });

function walk(event) {
  const step = { ArrowUp: -1, ArrowDown: 1, ArrowLeft: 0, ArrowRight: 0 }[event.key];
  if (step === undefined || event.target !== byId("graph")) return;
  event.preventDefault();
  const view = viewOf(state.folded), chosen = [...(chosenNodes() || [0])];
  const at = chosen.length ? chosen[0] : 0;
  let near;
  if (step) near = view.edges.filter((e) => (step < 0 ? e.to : e.from) === at).map((e) => (step < 0 ? e.from : e.to));
  else near = view.x.map((_, n) => n).filter((n) => n !== at && view.y[n] === view.y[at] && (event.key === "ArrowLeft") === view.x[n] < view.x[at]);
  near.sort((a, b) => Math.abs(view.x[a] - view.x[at]) - Math.abs(view.x[b] - view.x[at]));
  if (near.length) select(nodeSelection(view, near[0]));
}

function fold() {
  state.folded = !state.folded && Boolean(D.groups);
  if (state.selected && state.selected.kind === "group") state.selected = null;
  changed("view");
  state.selected ? fitSelection() : fit();
}

function move(nodes, duration, least, most) {
  const canvas = byId("canvas"), view = viewOf(state.folded);
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (!nodes.length) return;
  if (!width || !height) { graph.unfitted = true; return; } // not shown yet, on a phone
  let left = Infinity, right = -Infinity, top = Infinity, bottom = -Infinity;
  for (const n of nodes) {
    left = Math.min(left, view.x[n]); right = Math.max(right, view.x[n]);
    top = Math.min(top, view.y[n]); bottom = Math.max(bottom, view.y[n]);
  }
  const wide = right - left + BOX.width + 60, high = bottom - top + BOX.height + 60;
  const k = Math.min(most, Math.max(least, Math.min(width / wide, height / high)));
  const y = high * k > height ? -top * k + 50 : height / 2 - (k * (top + bottom)) / 2; // from the top where it does not fit
  const target = d3.zoomIdentity.translate(width / 2 - (k * (left + right)) / 2, y).scale(k);
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const chosen = d3.select(canvas);
  if (still || !duration) chosen.call(graph.zoom.transform, target);
  else chosen.transition().duration(duration).call(graph.zoom.transform, target);
}

const everything = () => viewOf(state.folded).x.map((_, n) => n);
const fit = (duration = 350) => move(everything(), duration, 0.01, 1.1);
const fitSelection = (duration = 350) => move([...(chosenNodes() || [])], duration, 0.06, 1.1);
