// The source's pane: each line with its share, in the colours of the kernels that compute it.

let lineRows = new Map();

function startSource() {
  onChange((what) => (what.startsWith("selected") ? markLines(what === "selected") : what === "view" ? null : drawSource()));
  drawSource();
}

/** Per kernel, what a line costs: the most costly first. */
function lineCosts(ops) {
  const costs = new Map();
  for (const i of ops) {
    const kernel = kernelOf(state.program, i), own = cost(state.program, i, state.measure);
    if (kernel && own) costs.set(kernel, (costs.get(kernel) || 0) + own);
  }
  return [...costs.entries()].sort((a, b) => b[1] - a[1]);
}

function drawSource() {
  const pane = byId("source"), all = total(state.program, state.measure);
  const open = new Set([...pane.querySelectorAll("details[open]")].map((d) => Number(d.dataset.file)));
  const first = !pane.childElementCount;
  lineRows = new Map();
  const perLine = new Map();
  for (const [key, ops] of linesOf) perLine.set(key, lineCosts(ops));
  const sum = (costs) => costs.reduce((s, [, own]) => s + own, 0);
  const most = Math.max(1e-30, ...[...perLine.values()].map(sum));
  const files = D.files.map((file, f) => {
    const share = file.lines.reduce((s, [line]) => s + sum(perLine.get(`${f}:${line}`) || []), 0) / all;
    const rows = [];
    file.lines.forEach(([line, code], n) => {
      if (n && file.lines[n - 1][0] < line - 1) rows.push(el("div", { class: "gap" }, "⋮"));
      rows.push(lineRow(f, line, code, perLine.get(`${f}:${line}`) || [], most, all));
    });
    const isOpen = first ? f < 2 || share > 0.1 : open.has(f);
    return el("details", { class: "file", open: isOpen, "data-file": f },
      el("summary", {}, file.name, " ", el("small", {}, formatShare(share), share ? ` of the ${state.measure === "bytes" ? "bytes" : "predicted time"}` : "", file.found ? "" : " (not found here)")),
      rows);
  });
  pane.replaceChildren(...(files.length ? files : [el("p", { style: { padding: ".6rem" } }, "The program does not say which lines it comes from.")]));
  markLines(false);
}

function lineRow(f, line, code, costs, most, all) {
  const key = `${f}:${line}`, ops = linesOf.get(key);
  const indent = code.length - code.trimStart().length;
  const own = costs.reduce((s, [, c]) => s + c, 0);
  const strip = el("span", { class: ops ? "strip" : "" }, costs.map(([kernel, c]) => el("i", { style: { width: `${(100 * c) / most}%`, background: colour(kernel) } })));
  const row = el("div", { class: "code-line" + (ops ? " counts" : ""), style: {} },
    el("span", { class: "number" }, line), strip, el("span", { class: "share" }, formatShare(own / all)), el("code", {}, highlighted(code.trimStart(), "python")));
  row.style.setProperty("--indent", Math.min(indent, 24));
  if (!ops) return row;
  const names = costs.slice(0, 4).map(([kernel]) => kernel.title).join("\n");
  row.title = `${formatShare(own / all) || "0%"} of the ${state.measure === "bytes" ? "bytes" : "predicted time"}, ${many(ops.length, "operation")}\n${names}`;
  row.tabIndex = 0;
  row.setAttribute("role", "button");
  row.dataset.line = lineName(f, line);
  const chosen = () => select({ kind: "line", file: f, line });
  row.addEventListener("click", chosen);
  row.addEventListener("keydown", (event) => event.key === "Enter" && chosen());
  lineRows.set(key, row);
  return row;
}

function markLines(scroll) {
  for (const row of lineRows.values()) row.classList.remove("chosen");
  const keys = new Set();
  if (state.selected && state.selected.kind === "line") keys.add(`${state.selected.file}:${state.selected.line}`);
  else for (const i of selectedOps()) keys.add(`${D.ops.file[i]}:${D.ops.line[i]}`);
  let first = null;
  for (const [key, row] of lineRows) {
    if (!keys.has(key)) continue;
    row.classList.add("chosen");
    first = first || row;
  }
  if (!first || !scroll) return;
  first.closest("details").open = true;
  const pane = byId("source"), box = pane.getBoundingClientRect(), at = first.getBoundingClientRect();
  if (pane.scrollHeight > pane.clientHeight && (at.top < box.top + 40 || at.bottom > box.bottom)) pane.scrollTop += at.top - box.top - box.height / 3;
}
