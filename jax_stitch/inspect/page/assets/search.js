// Search over kernels, lines and operations.

const finder = { results: [], at: 0 };

function startSearch() {
  const input = byId("search"), list = byId("found");
  input.addEventListener("input", () => { find(input.value); drawFound(); });
  input.addEventListener("focus", () => { find(input.value); drawFound(); });
  input.addEventListener("blur", () => setTimeout(() => (list.hidden = list.hidden || document.activeElement !== input), 150));
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      finder.at = Math.max(0, Math.min(finder.results.length - 1, finder.at + (event.key === "ArrowDown" ? 1 : -1)));
      drawFound();
    } else if (event.key === "Enter" && finder.results[finder.at]) take(finder.results[finder.at]);
    else if (event.key === "Escape") { input.value = ""; list.hidden = true; input.blur(); }
    event.stopPropagation();
  });
}

function find(asked) {
  finder.at = 0;
  finder.results = [];
  const terms = asked.toLowerCase().split(/\s+/).filter(Boolean);
  if (!terms.length) return;
  const fits = (...texts) => { const all = texts.join(" ").toLowerCase(); return terms.every((t) => all.includes(t)); };
  const add = (selected, label, about, mark) => finder.results.push({ selected, label, about, mark });
  const order = [state.program, ...D.programs.map((_, p) => p).filter((p) => p !== state.program)];
  for (const p of order) {
    let count = 0;
    for (const k of D.programs[p].kernels) if (count < 8 && fits(k.title, k.name)) { count++; add({ kind: "kernel", program: p, id: k.number }, k.title, `${D.programs[p].name}: ${k.name}, ${formatSeconds(k.seconds)}`, k); }
  }
  let lines = 0;
  D.files.forEach((file, f) => file.lines.forEach(([line, code]) => { if (lines < 8 && linesOf.has(`${f}:${line}`) && fits(lineName(f, line), code)) { lines++; add({ kind: "line", file: f, line }, lineName(f, line), code.trim()); } }));
  let ops = 0;
  for (let i = 0; i < opCount() && ops < 12; i++) if (fits(D.ops.name[i], text(D.ops.op[i]), text(D.ops.scope[i]), text(D.ops.type[i]))) { ops++; add({ kind: "op", id: i }, D.ops.name[i], `${text(D.ops.type[i])} ${text(D.ops.scope[i])}`, kernelOf(state.program, i)); }
}

function drawFound() {
  const list = byId("found");
  list.hidden = !byId("search").value.trim();
  list.replaceChildren(...(finder.results.length ? finder.results.map((r, n) => el("li", { role: "option", "aria-selected": String(n === finder.at), on: { mousedown: (event) => { event.preventDefault(); take(r); } } }, r.mark ? swatch(r.mark) : "", r.label, el("small", {}, r.about))) : [el("li", { class: "soft" }, "nothing of that name")]));
  const chosen = list.querySelector("[aria-selected=true]");
  if (chosen) chosen.scrollIntoView({ block: "nearest" });
}

function take(result) {
  byId("found").hidden = true;
  byId("search").blur();
  select(result.selected);
  showPane("detail");
}
