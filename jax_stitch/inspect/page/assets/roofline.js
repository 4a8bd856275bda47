// Both programs under the roof: what each kernel computes for a byte, and how fast it is predicted to.

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function rooflinePoints() {
  return D.programs.flatMap((program, p) => program.kernels.filter((k) => k.flops > 0 && k.bytes > 0 && k.seconds > 0).map((k) => ({ p, k, x: k.flops / k.bytes, y: k.flops / k.seconds })));
}

function roofline() {
  const points = rooflinePoints();
  if (!points.length) return el("p", {}, "No kernel computes anything.");
  const { bandwidth, peak } = D.device, W = 900, H = 420, left = 64, right = 18, top = 16, bottom = 44;
  const low = (values) => Math.floor(Math.log10(Math.min(...values))), high = (values) => Math.ceil(Math.log10(Math.max(...values)));
  const xs = [low([...points.map((q) => q.x), peak / bandwidth]), high([...points.map((q) => q.x), (3 * peak) / bandwidth])];
  const ys = [low(points.map((q) => q.y)), high([peak])];
  const X = (v) => left + ((Math.log10(v) - xs[0]) / (xs[1] - xs[0])) * (W - left - right);
  const Y = (v) => H - bottom - ((Math.log10(v) - ys[0]) / (ys[1] - ys[0])) * (H - top - bottom);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, width: "100%", role: "img", "aria-label": "roofline of both programs" });
  for (let e = xs[0]; e <= xs[1]; e++) picture.append(svg("line", { class: "axis", x1: X(10 ** e), x2: X(10 ** e), y1: top, y2: H - bottom }), svg("text", { x: X(10 ** e), y: H - bottom + 17, "text-anchor": "middle" }, power(e)));
  for (let e = ys[0]; e <= ys[1]; e++) picture.append(svg("line", { class: "axis", x1: left, x2: W - right, y1: Y(10 ** e), y2: Y(10 ** e) }), svg("text", { x: left - 8, y: Y(10 ** e) + 4, "text-anchor": "end" }, flops(e)));
  picture.append(svg("text", { x: (left + W) / 2, y: H - 8, "text-anchor": "middle" }, "operations for each byte of device memory"), svg("text", { x: -(H - bottom) / 2, y: 13, transform: "rotate(-90)", "text-anchor": "middle" }, "operations per second, predicted"));
  const start = Math.max(10 ** xs[0], 10 ** ys[0] / bandwidth);
  picture.append(svg("path", { class: "roof", d: `M${X(start)},${Y(start * bandwidth)} L${X(peak / bandwidth)},${Y(peak)} L${X(10 ** xs[1])},${Y(peak)}` }));
  picture.append(svg("text", { x: W - right - 4, y: Y(peak) - 6, "text-anchor": "end" }, `${formatCount(Math.round(peak / 1e9))} G operations/s`));
  const longest = Math.max(...points.map((q) => q.k.seconds));
  for (const q of points.sort((a, b) => b.k.seconds - a.k.seconds)) picture.append(point(q, X(q.x), Y(Math.max(q.y, 10 ** ys[0])), 3.5 + 11 * Math.sqrt(q.k.seconds / longest)));
  const marks = D.programs.map((program, p) => el("span", {}, `${["○", "●", "■"][p]} ${program.name}`));
  return [
    el("div", { id: "roofline" }, el("div", { class: "legend" }, marks, el("span", {}, "size: predicted time; click for the kernel"), el("span", {}, `slope: ${formatBytes(bandwidth)}/s`)), picture),
    el("p", { class: "soft" }, "A kernel on the slope moves bytes as fast as the memory can; below it, launches or instructions cost time. A fused kernel moves right: as much arithmetic for fewer bytes."),
  ];
}

function point({ p, k }, x, y, r) {
  const look = { "data-kernel": k.slug, "data-program": p, fill: p === 0 ? "transparent" : colour(k, 0.85), stroke: p === 0 ? colour(k) : css("--ink"), "stroke-width": p === 0 ? 2 : 0.7 };
  const made = p === 2 ? svg("rect", { class: "point", x: x - r, y: y - r, width: 2 * r, height: 2 * r, ...look }) : svg("circle", { cx: x, cy: y, r, ...look });
  made.append(svg("title", {}, `${D.programs[p].name}: ${k.title}\n${formatSeconds(k.seconds)}, ${formatBytes(k.bytes)}`));
  made.addEventListener("click", () => { select({ kind: "kernel", program: p, id: k.number }); showPane("detail"); });
  return made;
}

const power = (e) => (e >= 0 && e <= 3 ? String(10 ** e) : e < 0 && e >= -3 ? (10 ** e).toFixed(-e) : `1e${e}`);
const flops = (e) => (e >= 12 ? `${10 ** (e - 12)} T` : e >= 9 ? `${10 ** (e - 9)} G` : e >= 6 ? `${10 ** (e - 6)} M` : e >= 3 ? `${10 ** (e - 3)} k` : `1e${e}`);
