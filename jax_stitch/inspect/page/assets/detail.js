// The detail's pane: what is chosen, and links to what it has to do with.

function startDetail() {
  onChange((what) => what.startsWith("selected") && drawDetail());
  drawDetail();
}

function drawDetail() {
  const chosen = state.selected, pane = byId("detail");
  const parts = !chosen ? overview() : chosen.kind === "kernel" ? kernelDetail(chosen) : chosen.kind === "op" ? operationDetail(chosen.id) : chosen.kind === "group" ? groupDetail(chosen.id) : lineDetail(chosen);
  pane.replaceChildren(...parts.flat(Infinity).filter(Boolean));
  pane.scrollTop = 0;
}

const fact = (name, ...value) => [el("dt", {}, name), el("dd", {}, ...value)];
const facts = (...rows) => el("dl", { class: "facts" }, rows.filter(Boolean));
const part = (title, ...content) => el("div", { class: "detail-part" }, el("h3", {}, title), ...content);
const folding = (title, ...content) => el("details", { class: "detail-part" }, el("summary", {}, title), ...content);

function link(label, selected, ...before) {
  const address = "#" + addressOf(selected);
  return el("a", { href: address, on: { click: (event) => { event.preventDefault(); select(selected); } } }, ...before, label);
}
const kernelLink = (kernel) => link(kernel.title, { kind: "kernel", program: kernel.program, id: kernel.number }, swatch(kernel));
const opLink = (i) => link(D.ops.name[i], { kind: "op", id: i });
const lineLink = (f, line) => link(lineName(f, line), { kind: "line", file: f, line });

/** A list that shows some and has the rest folded. */
function listed(items, shown = 8) {
  const list = (some) => el("ul", { class: "links" }, some.map((item) => el("li", {}, item)));
  if (items.length <= shown + 2) return list(items);
  return [list(items.slice(0, shown)), folding(`${formatCount(items.length - shown)} more`, list(items.slice(shown, 400)))];
}

function overview() {
  const after = D.programs[state.program], own = after.kernels.filter((k) => k.kind === "stitched");
  const top = [...(own.length ? own : after.kernels)].sort((a, b) => b.seconds - a.seconds).slice(0, 8);
  return [
    el("h2", {}, D.function, " ", el("small", {}, D.device.about)),
    el("p", {}, D.verdict),
    part("What takes longest", el("ul", { class: "links" }, top.map((k) => el("li", {}, kernelLink(k), el("span", { class: "soft" }, ` ${formatSeconds(k.seconds)}, ${formatBytes(k.bytes)}`))))),
    part("How to read it",
      el("p", {}, "A line of the source, a box of the graph, a row of the tables: each leads to its kernel, and shows it in all three."),
      el("p", {}, "In the graph a band of colour is one kernel: what it holds stays on the chip. Thin lines go through memory. Switch between jax.jit and stitched above: the boxes stay where they are.")),
    part("How it is predicted",
      el("p", {}, "Stitched kernels by the latency-evaluator, term by term. Kernels of XLA by their bytes at the device's bandwidth for so many, and a launch each; library calls by at least their arithmetic at the peak. Of a kernel's time, half is divided among its lines by the bytes that they move, half by what they compute."),
      el("p", {}, "All figures compare with XLA's final program, the one that jax.jit runs.")),
    D.notes.length ? part("Notes", D.notes.map((note) => el("p", {}, note))) : null,
    D.differences ? null : facts(fact("planner", D.planner), Object.keys(D.stages).length ? fact("planned in", Object.entries(D.stages).map(([s, t]) => `${s} ${formatSeconds(t)}`).join(", ")) : null),
  ];
}

function kernelDetail({ program, id }) {
  const kernel = D.programs[program].kernels[id];
  const kind = { stitched: "stitched kernel", library: "library call", xla: program === 0 ? "kernel of XLA" : "left to XLA" }[kernel.kind];
  const launches = kernel.launches === 1 ? "1 launch" : many(kernel.launches, "launch", "launches");
  return [
    el("h2", {}, swatch(kernel), kernel.title),
    el("p", { class: "soft" }, `${kind} `, el("code", {}, kernel.name), `, ${launches}`, program > 1 ? `, ${D.programs[program].name}` : ""),
    kernelFigures(kernel, program),
    baseline(kernel, program),
    kernel.latency ? latencyTerms(kernel) : null,
    kernel.schedule ? part("Schedule", el("p", {}, el("code", {}, kernel.schedule)), el("p", {}, `${kernel.launch} (blocks x threads)`), el("div", { class: "chips" }, kernel.composition.map((c) => el("span", { class: "chip" }, c)))) : null,
    linesPart(kernel.members),
    program > 0 ? stopsPart(kernel.members, "Where XLA stopped inside", true) : stopsPart(kernel.members, "Why XLA's fusion stopped at its edges", false),
    candidates(kernel),
    neighbours(kernel, program),
    kernel.members.length ? folding(many(kernel.members.length, "operation"), listed(kernel.members.map((i) => [opLink(i), " ", el("span", { class: "soft" }, `${text(D.ops.op[i])} ${text(D.ops.type[i])}`)]), 40)) : null,
    kernel.source !== undefined ? sourcePart(text(kernel.source)) : null,
  ];
}

function kernelFigures(kernel, program) {
  const most = Math.max(kernel.bytes, kernel.bound, 1);
  const row = (label, value, fill) => [el("span", { class: "soft" }, label), el("div", { class: "bars" }, el("i", { style: { width: `${(100 * value) / most}%`, background: fill } })), el("span", { class: "n" }, formatBytes(value))];
  return [
    facts(
      fact("predicted", el("b", {}, formatSeconds(kernel.seconds)), ` ${formatShare(kernel.seconds / total(program, "seconds"))} of the program`),
      kernel.measured ? fact("measured", `${formatSeconds(kernel.measured[0])}, XLA's own ${formatSeconds(kernel.measured[1])}`) : null,
      kernel.read !== undefined ? fact("traffic", `${formatBytes(kernel.read)} read, ${formatBytes(kernel.written)} written, by each launch`) : null,
      kernel.flops ? fact("arithmetic", `${formatCount(kernel.flops)} operations, ${(kernel.flops / Math.max(1, kernel.bytes)).toPrecision(2)} for each byte`) : null,
    ),
    !kernel.bound ? facts(fact("traffic", formatBytes(kernel.bytes))) : part("Bytes against the bound", el("div", { class: "scale" }, row("moved", kernel.bytes, colour(kernel)), row("bound", kernel.bound, css("--soft"))),
      el("p", { class: "soft" }, `${(kernel.bytes / kernel.bound).toFixed(2)} of its bound: what it needs read once, what others need written once`)),
  ];
}

/** What of XLA's final program a stitched kernel stands for, and the other way around. */
function baseline(kernel, program) {
  const before = D.programs[0].kernels;
  if (program === 0) {
    const takers = D.programs.slice(1).flatMap((_, n) => kernelsOf(n + 1, kernel.members));
    return takers.length ? part("In the stitched program", listed(takers.map(kernelLink))) : null;
  }
  if (kernel.kind !== "stitched" || kernel.foreign) return null;
  const longest = (numbers) => numbers.map((b) => before[b]).sort((a, b) => b.seconds - a.seconds);
  const gone = longest(kernel.replaces), shared = longest(kernel.shares);
  const sum = (list, what) => list.reduce((s, k) => s + k[what], 0);
  if (!gone.length) return part("In place of", el("p", {}, "no kernel of XLA's final program as a whole", shared.length ? ":" : "."), listed(shared.map((k) => ["a part of ", kernelLink(k)])));
  const launches = sum(gone, "launches"), faster = sum(gone, "seconds") - kernel.seconds;
  const nothing = launches <= kernel.launches && sum(gone, "bytes") <= 1.02 * kernel.bytes;
  let gain = "";
  if (shared.length) gain = `, and of parts of ${shared.length} others`; // whose part of the time nobody can tell
  else if (nothing) gain = [": ", el("b", {}, "nothing gained")];
  else gain = [": now ", el("b", { class: faster > 0 ? "good" : "bad" }, faster > 0 ? `${formatSeconds(faster)} less` : `${formatSeconds(-faster)} more`)];
  return part("In place of",
    el("p", {}, `${many(launches, "launch", "launches")} of XLA's final program, ${formatBytes(sum(gone, "bytes"))}, ${formatSeconds(sum(gone, "seconds"))} predicted`, gain, "."),
    listed([...gone.map(kernelLink), ...shared.map((k) => ["a part of ", kernelLink(k)])]));
}

function linesPart(ops) {
  const seen = new Map();
  for (const i of ops) if (D.ops.file[i] >= 0) seen.set(`${D.ops.file[i]}:${D.ops.line[i]}`, [D.ops.file[i], D.ops.line[i]]);
  const lines = [...seen.values()].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  if (!lines.length) return null;
  return part("Lines", el("div", { class: "chips" }, lines.slice(0, 30).map(([f, line]) => el("button", { class: "chip", type: "button", "data-line": lineName(f, line), on: { click: () => select({ kind: "line", file: f, line }) } }, lineName(f, line))), lines.length > 30 ? el("span", { class: "soft" }, `and ${lines.length - 30} more`) : ""));
}

function stopsPart(ops, title, both) {
  const own = new Set(ops);
  const found = D.stops.filter(([p, c]) => (both ? own.has(p) && own.has(c) : own.has(p) || own.has(c)));
  if (!found.length) return null;
  return part(title, listed(found.map(([p, c, pass, reason, joined]) => [opLink(p), " → ", opLink(c), `: ${text(reason)} `, el("span", { class: "soft" }, `(${text(pass)}; ${joined ? "joined by stitching" : "apart in the stitched program too"})`)]), 5));
}

function neighbours(kernel, program) {
  const { transfers, kernels } = D.programs[program];
  const named = (n, bytes) => [n < 0 ? "arguments" : kernelLink(kernels[n]), el("span", { class: "soft" }, ` ${formatBytes(bytes)}`)];
  const reads = transfers.filter((t) => t[1] === kernel.number).sort((a, b) => b[2] - a[2]);
  const gives = transfers.filter((t) => t[0] === kernel.number).sort((a, b) => b[2] - a[2]);
  if (!reads.length && !gives.length) return null;
  return folding(`Reads from ${many(reads.length, "place")}, is read by ${many(gives.length, "kernel")}`,
    reads.length ? part("Reads", listed(reads.map((t) => named(t[0], t[2])))) : null, gives.length ? part("Is read by", listed(gives.map((t) => named(t[1], t[2])))) : null);
}

function operationDetail(i) {
  const ops = D.ops;
  return [
    el("h2", {}, ops.name[i], " ", el("small", {}, text(ops.op[i]))),
    facts(
      fact("value", el("code", {}, text(ops.type[i])), ` ${formatBytes(ops.bytes[i])}`),
      ops.trips[i] > 1 ? fact("runs", `${formatCount(ops.trips[i])} times a call`) : null,
      text(ops.scope[i]) ? fact("scope", text(ops.scope[i])) : null,
      ops.file[i] >= 0 ? fact("line", lineLink(ops.file[i], ops.line[i])) : null,
      ops.parent[i] >= 0 ? fact("inside", opLink(ops.parent[i])) : null,
    ),
    part("Kernels", el("ul", { class: "links" }, D.programs.map((program, p) => el("li", {}, el("span", { class: "soft" }, program.name + ": "), kernelOf(p, i) ? kernelLink(kernelOf(p, i)) : "none: no work of its own")))),
    stopsPart([i], "Where XLA's fusion stopped beside it", false),
    ops.reads[i].length ? part("Reads", listed(ops.reads[i].map(opLink))) : null,
    users[i].length ? part("Is read by", listed(users[i].map(opLink))) : null,
    el("p", { class: "soft" }, "More of it: ", el("code", {}, `print(plan.explain("${ops.name[i].split("#")[0]}"))`)),
  ];
}

function groupDetail(g) {
  const ops = selectedOps({ kind: "group", id: g }), { label, times } = D.groups;
  return [
    el("h2", {}, label[g], times[g] > 1 ? ` x ${times[g]}` : ""),
    el("p", { class: "soft" }, `${many(ops.length, "operation")} of ${many(times[g], "layer")}, folded`),
    D.programs.map((program, p) => part(`Kernels of ${program.name}`, listed(kernelsOf(p, ops).map(kernelLink), 14))),
    linesPart(ops),
    folding(many(ops.length, "operation"), listed(ops.map((i) => [opLink(i), " ", el("span", { class: "soft" }, `${text(D.ops.type[i])} ${text(D.ops.scope[i])}`)]), 40)),
  ];
}

function lineDetail({ file, line }) {
  const ops = linesOf.get(`${file}:${line}`) || [];
  const [, code] = D.files[file].lines.find(([n]) => n === line) || [0, ""];
  const rows = D.programs.map((program, p) => {
    const share = (measure) => ops.reduce((s, i) => s + cost(p, i, measure), 0);
    return fact(program.name, `${formatBytes(share("bytes"))} (${formatShare(share("bytes") / total(p, "bytes")) || "0%"}), ${formatSeconds(share("seconds"))} (${formatShare(share("seconds") / total(p, "seconds")) || "0%"})`);
  });
  return [
    el("h2", {}, lineName(file, line)),
    el("pre", { class: "kernel-source" }, highlighted(code.trim(), "python")),
    part("Its share", facts(...rows)),
    D.programs.map((program, p) => part(`Kernels of ${program.name}`, listed(kernelsOf(p, ops).map(kernelLink), 14))),
    folding(many(ops.length, "operation"), listed(ops.map((i) => [opLink(i), " ", el("span", { class: "soft" }, text(D.ops.type[i]))]), 40)),
  ];
}
