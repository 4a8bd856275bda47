// The plan: unpacked, and indexed by what users click on.

let D = null; // what jax_stitch/inspect/page/payload.py wrote
let users = []; // for each operation, those that read it
let linesOf = new Map(); // "file:line" -> operations

async function unpack() {
  const packed = atob(byId("data").textContent.trim());
  const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
  if (typeof DecompressionStream === "undefined")
    throw new Error("this browser cannot unpack the page (it has no DecompressionStream): use one of 2023 or later");
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function index() {
  const ops = D.ops;
  users = ops.name.map(() => []);
  ops.reads.forEach((reads, i) => reads.forEach((o) => users[o].push(i)));
  linesOf = new Map();
  ops.line.forEach((line, i) => {
    if (ops.file[i] < 0) return;
    const key = `${ops.file[i]}:${line}`;
    if (!linesOf.has(key)) linesOf.set(key, []);
    linesOf.get(key).push(i);
  });
  D.programs.forEach((program, p) => {
    const seen = new Map();
    program.kernels.forEach((kernel, k) => {
      const count = (seen.get(kernel.name) || 0) + 1;
      seen.set(kernel.name, count);
      kernel.slug = count === 1 ? kernel.name : `${kernel.name}~${count}`; // kernels that are alike share a name
      kernel.program = p;
      kernel.number = k;
      kernel.order = k;
    });
  });
}

const text = (n) => D.strings[n];
const opCount = () => D.ops.name.length;
const kernelOf = (p, i) => (D.programs[p].of[i] < 0 ? null : D.programs[p].kernels[D.programs[p].of[i]]);
const fileName = (f) => D.files[f].name;
const lineName = (f, line) => `${fileName(f)}:${line}`;

/** An operation's part of its kernel's bytes or time. */
const cost = (p, i, measure) => (measure === "bytes" ? D.programs[p].bytes[i] : D.programs[p].nanoseconds[i] * 1e-9);

/** A total of a program over its kernels, which shares are of. */
const total = (p, measure) => D.programs[p].kernels.reduce((sum, k) => sum + k[measure], 0) || 1;

/** The kernels of some operations in a program, those with most of them first. */
function kernelsOf(p, ops) {
  const counts = new Map();
  for (const i of ops) {
    const kernel = kernelOf(p, i);
    if (kernel) counts.set(kernel, (counts.get(kernel) || 0) + 1);
  }
  return [...counts.entries()].sort((a, b) => b[1] - a[1]).map(([kernel]) => kernel);
}

/** Whether a kernel computes an operation, also one that has the colour of another. */
function computes(kernel, i) {
  kernel.has = kernel.has || new Set(kernel.members);
  return kernel.has.has(i);
}
