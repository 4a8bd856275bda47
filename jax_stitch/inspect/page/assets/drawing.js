// What the graph's canvas shows: operations as boxes, kernels as bands of colour around those that stay on the chip
// together, and thin lines for what goes through memory.

const BOX = { width: 100, height: 26 };
const views = {};

/** The nodes and edges of the folded or the full drawing. */
function viewOf(folded) {
  const name = folded && D.groups ? "folded" : "full";
  if (views[name]) return views[name];
  const groups = name === "folded" ? D.groups : null;
  const of = groups ? groups.of : D.ops.name.map((_, i) => i);
  const { x, y } = groups || D.ops;
  const members = x.map(() => []);
  of.forEach((n, i) => members[n].push(i));
  const edges = new Map();
  D.ops.reads.forEach((reads, i) => {
    for (const o of reads) {
      if (of[o] === of[i]) continue;
      const key = of[o] * x.length + of[i];
      if (!edges.has(key)) edges.set(key, { from: of[o], to: of[i], pairs: [] });
      edges.get(key).pairs.push([o, i]);
    }
  });
  const label = groups ? groups.label : D.ops.op.map(text);
  const times = groups ? groups.times : x.map(() => 1);
  views[name] = { name, x, y, of, members, label, times, edges: [...edges.values()], loops: loopsOf(x, y, of) };
  return views[name];
}

/** Boxes around the bodies of loops. */
function loopsOf(x, y, of) {
  const boxes = new Map();
  D.ops.parent.forEach((parent, i) => {
    for (let p = parent; p >= 0; p = D.ops.parent[p]) {
      const n = of[i];
      const box = boxes.get(p) || { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity, trips: 1, name: D.ops.name[p] };
      box.left = Math.min(box.left, x[n] - 70);
      box.right = Math.max(box.right, x[n] + 70);
      box.top = Math.min(box.top, y[n] - 24);
      box.bottom = Math.max(box.bottom, y[n] + 26);
      if (D.ops.parent[i] === p) box.trips = Math.max(box.trips, D.ops.trips[i]);
      boxes.set(p, box);
    }
  });
  return [...boxes.values()];
}

/** The colours of a view under a program: each node's kernel, and the edges that stay inside one. */
function colouring(view, p) {
  view.colourings = view.colourings || {};
  if (view.colourings[p]) return view.colourings[p];
  const kernel = view.members.map((members) => {
    for (const i of members) if (kernelOf(p, i)) return kernelOf(p, i);
    return null;
  });
  const inside = view.edges.map((edge) => {
    const same = edge.pairs.filter(([a, b]) => kernelOf(p, b) && computes(kernelOf(p, b), a)).length;
    return 2 * same >= edge.pairs.length;
  });
  const bands = new Map();
  view.edges.forEach((edge, n) => {
    const own = kernel[edge.to];
    if (!inside[n] || !own) return;
    if (!bands.has(own)) bands.set(own, []);
    bands.get(own).push(edge);
  });
  return (view.colourings[p] = { kernel, inside, bands });
}

function curve(c, view, edge, straight) {
  const x = view.x[edge.from], y = view.y[edge.from], tx = view.x[edge.to], ty = view.y[edge.to];
  c.moveTo(x, y);
  if (straight) c.lineTo(tx, ty);
  else if (ty <= y) c.bezierCurveTo(x + 90, y + 60, tx + 90, ty - 60, tx, ty); // back to an earlier layer
  else c.bezierCurveTo(x, (y + ty) / 2, tx, (y + ty) / 2, tx, ty);
}

/** Paints a view; ``chosen`` are the nodes that stand out, or null. */
function paint(canvas, transform, view, p, chosen, hovered) {
  const c = canvas.getContext("2d");
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = canvas;
  c.setTransform(1, 0, 0, 1, 0, 0);
  c.clearRect(0, 0, width, height);
  c.setTransform(ratio * transform.k, 0, 0, ratio * transform.k, ratio * transform.x, ratio * transform.y);
  const seen = {
    left: -transform.x / transform.k - 60,
    right: (width / ratio - transform.x) / transform.k + 60,
    top: -transform.y / transform.k - 20,
    bottom: (height / ratio - transform.y) / transform.k + 20,
  };
  const look = { c, view, seen, k: transform.k, chosen, hovered, ink: css("--ink"), soft: css("--soft"), paper: css("--paper"), accent: css("--accent"), ...colouring(view, p) };
  paintLoops(look);
  paintBands(look);
  paintEdges(look);
  paintNodes(look);
  nameLoops(look);
}

function paintLoops({ c, view, k, soft }) {
  for (const box of view.loops) {
    c.strokeStyle = soft;
    c.lineWidth = 1 / k;
    c.setLineDash([6 / k, 4 / k]);
    c.strokeRect(box.left, box.top, box.right - box.left, box.bottom - box.top);
    c.setLineDash([]);
  }
}

function nameLoops({ c, view, k, soft, paper }) {
  const size = Math.max(11, 11 / Math.max(k, 0.3));
  c.font = `${size}px system-ui, "DejaVu Sans", sans-serif`;
  c.textAlign = "left";
  c.textBaseline = "top";
  for (const box of view.loops) {
    const label = box.trips > 1 ? `${box.name}: ${formatCount(box.trips)} times` : box.name;
    c.globalAlpha = 0.85;
    c.fillStyle = paper;
    c.fillRect(box.left, box.bottom + 1, c.measureText(label).width + 6, size + 4);
    c.globalAlpha = 1;
    c.fillStyle = soft;
    c.fillText(label, box.left + 3, box.bottom + 3);
  }
}

const isOff = (edge, { view, seen }) => {
  const { x, y } = view, { from, to } = edge;
  return (
    Math.max(x[from], x[to]) < seen.left || Math.min(x[from], x[to]) > seen.right ||
    Math.max(y[from], y[to]) < seen.top || Math.min(y[from], y[to]) > seen.bottom
  );
};

function paintBands(look) {
  const { c, view, bands, chosen, k } = look;
  c.lineCap = "round";
  c.lineJoin = "round";
  c.lineWidth = 34;
  for (const [kernel, edges] of bands) {
    c.beginPath();
    for (const edge of edges) if (!isOff(edge, look)) curve(c, view, edge, k < 0.25);
    c.strokeStyle = colour(kernel, chosen && kernel !== chosenKernel() ? 0.08 : 0.27);
    c.stroke();
  }
  if (!chosen) return;
  c.beginPath();
  let own = null;
  view.edges.forEach((edge, n) => {
    if (!look.inside[n] || !chosen.has(edge.from) || !chosen.has(edge.to) || isOff(edge, look)) return;
    curve(c, view, edge, k < 0.25);
    own = chosenKernel() || look.kernel[edge.to];
  });
  if (own) c.strokeStyle = colour(own, 0.3);
  if (own) c.stroke();
}

function paintEdges(look) {
  const { c, view, inside, chosen, k, soft, ink } = look;
  const straight = k < 0.25;
  c.lineWidth = Math.max(0.8, 0.7 / k);
  for (const strong of [false, true]) {
    c.beginPath();
    view.edges.forEach((edge, n) => {
      const touches = chosen && (chosen.has(edge.from) || chosen.has(edge.to));
      if (Boolean(touches) !== strong || isOff(edge, look)) return;
      if (inside[n] && !strong && straight) return;
      curve(c, view, edge, straight);
    });
    c.globalAlpha = strong ? 0.75 : chosen ? 0.12 : view.edges.length > 3000 ? 0.22 : 0.45;
    c.strokeStyle = strong ? ink : soft;
    c.stroke();
  }
  c.globalAlpha = 1;
}

const chosenKernel = () => (state.selected && state.selected.kind === "kernel" ? D.programs[state.selected.program].kernels[state.selected.id] : null);

function paintNodes(look) {
  const { c, view, seen, k, chosen, hovered, ink, soft, paper, accent } = look;
  const kernel = [...look.kernel];
  // What several kernels compute, in several layers or again, has the colour of the one that is chosen.
  if (chosenKernel() && chosen) for (const n of chosen) kernel[n] = chosenKernel();
  const { width, height } = BOX;
  c.textAlign = "center";
  c.textBaseline = "middle";
  for (let n = 0; n < view.x.length; n++) {
    const x = view.x[n], y = view.y[n];
    if (x < seen.left || x > seen.right || y < seen.top || y > seen.bottom) continue;
    const stands = !chosen || chosen.has(n);
    c.globalAlpha = stands ? 1 : 0.28;
    c.beginPath();
    if (k > 0.3) c.roundRect(x - width / 2, y - height / 2, width, height, kernel[n] ? 5 : height / 2);
    else c.rect(x - width / 2, y - height / 2, width, height);
    c.fillStyle = kernel[n] ? colour(kernel[n]) : paper;
    c.fill();
    if (!kernel[n] || (chosen && stands) || n === hovered) {
      c.strokeStyle = (chosen && stands) || n === hovered ? (n === hovered ? accent : ink) : soft;
      c.lineWidth = ((chosen && stands) || n === hovered ? 2 : 1) / Math.min(1, Math.max(k, 0.4));
      c.stroke();
    }
    if (k > 0.4) {
      c.fillStyle = kernel[n] ? (dark.matches ? "#0e1113" : "#15181a") : ink;
      c.font = '14px system-ui, "DejaVu Sans", sans-serif';
      c.fillText(fitted(c, view.label[n], width - 10), x, y + 0.5);
    }
    if (view.times[n] > 1 && k > 0.3) {
      c.fillStyle = ink;
      c.font = 'bold 12px system-ui, "DejaVu Sans", sans-serif';
      c.textAlign = "left";
      c.fillText(`x ${view.times[n]}`, x - width / 2 + 2, y - height / 2 - 7);
      c.textAlign = "center";
    }
  }
  c.globalAlpha = 1;
}

const fits = new Map();
function fitted(c, label, width) {
  if (fits.has(label)) return fits.get(label);
  let short = label;
  while (short.length > 2 && c.measureText(short).width > width) short = short.slice(0, short.endsWith("…") ? -2 : -1) + "…";
  fits.set(label, short);
  return short;
}
