// Of a stitched kernel: the terms of its predicted time, the candidates that lost, its source.

const TERMS = { launch: "#8c96a0", "threads or barriers": "#c07ad8", memory: "#3f8fe0", instructions: "#e08a3c" };

function latencyTerms(kernel) {
  const found = kernel.latency;
  const hidden = (p) => (p.memory >= p.compute ? "memory" : "instructions");
  const shown = [["launch", found.launch], ["threads or barriers", found.start], ...found.phases.map((p) => [hidden(p), p.seconds])].filter(([, s]) => s > 0);
  const all = shown.reduce((s, [, own]) => s + own, 0) || 1;
  const unit = found.occupancy ? "warp" : "block";
  return part("Predicted time of a launch",
    el("div", { class: "bars" }, shown.map(([name, s]) => el("i", { title: `${name} ${formatSeconds(s)}`, style: { width: `${(100 * s) / all}%`, background: TERMS[name] } }))),
    el("div", { class: "legend" }, Object.entries(TERMS).map(([name, fill]) => el("span", {}, el("span", { class: "swatch", style: { background: fill } }), name))),
    facts(
      fact("in all", `${formatSeconds(found.seconds)}, most of it ${found.most}`),
      fact("launch", formatSeconds(found.launch)),
      found.start ? fact("threads or barriers", formatSeconds(found.start)) : null,
      found.occupancy ? fact("occupancy", `${Math.round(100 * found.occupancy.share)}%: ${found.occupancy.blocks} blocks on a multiprocessor, limited by ${found.occupancy.limit}; ${found.registers} registers`) : null,
      found.phases.flatMap((p, n) => phase(p, found.phases.length > 1 ? `phase ${n}: ` : "", unit)),
      fact("constants", found.constants),
    ));
}

const phase = (p, head, unit) => [
  fact(`${head}instructions`, `${formatSeconds(p.compute)} = ${formatCount(p.waves)} waves (${formatCount(p.warps)} ${unit}s, ${formatCount(p.resident)} at a time) x ${formatCount(Math.round(p.cycles))} cycles of a ${unit}: `,
    el("span", { class: "soft" }, p.instructions.map(([name, n]) => `${n.toPrecision(3)} ${name}`).join(", "))),
  fact(`${head}memory`, `${formatSeconds(p.memory)} = ${formatBytes(p.bytes)} / ${formatBytes(p.bandwidth)}/s`),
];

function candidates(kernel) {
  if (kernel.kind !== "stitched" || kernel.foreign) return null;
  if (!kernel.candidates) return part("Candidates that lost", el("p", { class: "soft" }, "Not judged for this page, which takes its time for the longest kernels. Ask: ", el("code", {}, `print(plan.explain("${kernel.members.length ? D.ops.name[kernel.members[0]].split("#")[0] : "..."}"))`)));
  const rows = kernel.candidates.map((c) => {
    const more = c.launches ? `, ${many(Math.abs(c.launches), "launch", "launches")} ${c.launches > 0 ? "more" : "fewer"}` : "";
    const verdict = c.refused || (c.behind === null ? "" : c.behind > 0 ? `the plan with it is slower by ${formatSeconds(c.behind)}${more}` : c.behind === 0 && !c.launches ? "the plan with it takes as long" : `predicted faster by ${formatSeconds(-c.behind)}${more}: the planner has not met it, or it moves more bytes`);
    return [c.what, `saves ${formatSeconds(c.saves)} `, el("span", { class: "soft" }, `(memory ${formatSeconds(c.memory)}, launches ${formatSeconds(c.calls)}, penalty ${formatSeconds(c.penalty)}) `), el("b", {}, verdict)];
  });
  return part("Candidates that lost", el("p", {}, el("span", { class: "soft" }, `Chosen, around ${kernel.asked}: `), kernel.chosen), rows.length ? listed(rows) : el("p", { class: "soft" }, "There were no others."));
}

function sourcePart(code) {
  const body = el("pre", { class: "kernel-source", tabindex: "0" });
  const opened = folding(`Source, ${many(code.split("\n").length, "line")}`, el("button", { class: "chip", type: "button", on: { click: () => navigator.clipboard && navigator.clipboard.writeText(code) } }, "copy"), body);
  opened.addEventListener("toggle", () => body.childNodes.length || body.append(...highlighted(code, "c")));
  return opened;
}
