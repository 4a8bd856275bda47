// Tables below the panes, sorted by a click on a column.

const LOWER = { kernels: ["Stitched program", () => kernelTable(Math.max(1, state.program))], xla: ["jax.jit's program", () => kernelTable(0)], roofline: ["Roofline", () => roofline()], left: ["Left to XLA", () => leftTable()], hlo: ["HLO", () => [el("pre", { class: "kernel-source" }, D.hlo)]] };

function startTables() {
  if (D.differences) {
    LOWER.differences = ["Differences", () => differenceTable()];
    state.lower = "differences";
  }
  const order = ["differences", "kernels", "xla", "roofline", "left", "hlo"].filter((name) => LOWER[name] && (name !== "hlo" || D.hlo));
  byId("lower-tabs").append(...order.map((name) => el("button", { type: "button", role: "tab", id: `tab-${name}`, on: { click: () => openTable(name) } }, LOWER[name][0])));
  onChange((what) => {
    if (what === "program" && ["kernels", "roofline"].includes(state.lower)) openTable(state.lower);
    markRows();
  });
  openTable(state.lower);
}

function openTable(name) {
  state.lower = name;
  for (const button of byId("lower-tabs").children) button.setAttribute("aria-selected", String(button.id === `tab-${name}`));
  byId("lower").replaceChildren(...[LOWER[name][1]()].flat());
  markRows();
}

function markRows() {
  const address = "#" + addressOf(state.selected);
  for (const row of byId("lower").querySelectorAll("tr.row")) row.classList.toggle("chosen", row.dataset.address === address);
}

/** A column: title, what sorts, what is shown, whether it is a number. */
const column = (title, value, shown = value, number = true) => ({ title, value, shown, number });

function sortedTable(columns, rows, by, opened) {
  let [key, falling] = by;
  const body = el("tbody"), head = el("tr");
  const fill = () => {
    const { value } = columns[key];
    const ordered = [...rows].sort((a, b) => { const x = value(a), y = value(b); return (x < y ? -1 : x > y ? 1 : 0) * (falling ? -1 : 1); });
    body.replaceChildren(...ordered.map((row) => {
      const selected = opened && opened(row);
      const made = el("tr", { class: selected ? "row" : "", tabindex: selected ? "0" : null, "data-address": selected ? "#" + addressOf(selected) : null }, columns.map((c) => el("td", { class: c.number ? "n" : "wide" }, c.shown(row))));
      if (selected) {
        made.addEventListener("click", () => { select(selected); showPane("detail"); });
        made.addEventListener("keydown", (event) => event.key === "Enter" && select(selected));
      }
      return made;
    }));
    [...head.children].forEach((cell, n) => cell.setAttribute("aria-sort", n === key ? (falling ? "descending" : "ascending") : "none"));
    markRows();
  };
  head.append(...columns.map((c, n) => el("th", { class: c.number ? "n" : "", scope: "col" }, el("button", { type: "button", on: { click: () => { falling = n === key ? !falling : c.number; key = n; fill(); } } }, c.title))));
  fill();
  return el("div", { class: "scroll" }, el("table", { class: "sorted" }, el("thead", {}, head), body));
}

function replacesText(kernel) {
  const gone = kernel.replaces.reduce((s, b) => s + D.programs[0].kernels[b].launches, 0);
  if (kernel.kind !== "stitched" || kernel.foreign) return "";
  return formatCount(gone) + (kernel.shares.length ? ` + parts of ${kernel.shares.length}` : "");
}

function kernelTable(p) {
  const kernels = D.programs[p].kernels;
  const columns = [
    column("kernel", (k) => k.title, (k) => [swatch(k), k.title], false),
    column("name", (k) => k.name, (k) => el("code", {}, k.name), false),
    p ? column("replaces", (k) => k.replaces.reduce((s, b) => s + D.programs[0].kernels[b].launches, 0), replacesText) : null,
    column("launches", (k) => k.launches, (k) => formatCount(k.launches)),
    column("predicted", (k) => k.seconds, (k) => formatSeconds(k.seconds)),
    column("bytes", (k) => k.bytes, (k) => formatBytes(k.bytes)),
    p ? column("of its bound", (k) => k.bytes / Math.max(1, k.bound), (k) => (k.bound ? (k.bytes / k.bound).toFixed(2) : "-")) : null,
    p ? column("how parts meet", (k) => (k.composition || [k.kind]).join(" "), (k) => (k.composition ? k.composition.join(" + ") : k.kind === "library" ? "library call" : "left to XLA"), false) : null,
    column("operations", (k) => k.members.length, (k) => formatCount(k.members.length)),
  ].filter(Boolean);
  const by = columns.findIndex((c) => c.title === "predicted");
  return sortedTable(columns, kernels, [by, true], (k) => ({ kind: "kernel", program: p, id: k.number }));
}

function leftTable() {
  if (!D.left.length) return el("p", {}, "Nothing: every operation is in a stitched kernel.");
  const named = (name) => { const id = D.ops.name.indexOf(name); return [id < 0 ? name : opLink(id), " "]; };
  return sortedTable([
    column("operations", (r) => r[0], (r) => formatCount(r[0])),
    column("operation", (r) => r[1], (r) => r[1], false),
    column("reason", (r) => r[2], (r) => r[2], false),
    column("for example", (r) => r[3][0] || "", (r) => r[3].slice(0, 12).map(named), false),
  ], D.left, [0, true]);
}

function differenceTable() {
  const side = (p, ids) => (ids.length ? ids.map((id) => el("div", {}, kernelLink(D.programs[p].kernels[id]))) : "-");
  const sum = (p, ids, what) => ids.reduce((s, id) => s + D.programs[p].kernels[id][what], 0);
  return [el("p", {}, D.differences.verdict), sortedTable([
    column("change", (r) => r.what, (r) => r.what, false),
    column(D.programs[1].name, (r) => sum(1, r.left, "seconds"), (r) => side(1, r.left), false),
    column(D.programs[2].name, (r) => sum(2, r.right, "seconds"), (r) => side(2, r.right), false),
    column("predicted", (r) => sum(1, r.left, "seconds"), (r) => `${formatSeconds(sum(1, r.left, "seconds"))} → ${formatSeconds(sum(2, r.right, "seconds"))}`),
    column("bytes", (r) => sum(1, r.left, "bytes"), (r) => `${formatBytes(sum(1, r.left, "bytes"))} → ${formatBytes(sum(2, r.right, "bytes"))}`),
  ], D.differences.rows, [3, true])];
}
