// What is chosen and how it is shown; the address keeps it, so that a link leads back to it.

const state = { program: 1, measure: "seconds", folded: true, selected: null, pane: "source", lower: "kernels" };
const listeners = [];
const onChange = (listener) => listeners.push(listener);

function changed(what) {
  for (const listener of listeners) listener(what);
}

/** Chooses a kernel, operation, group of the folded graph, or line; null chooses nothing. */
function select(selected, { address = true, focus = true } = {}) {
  state.selected = selected;
  if (selected && selected.kind === "kernel" && selected.program !== state.program) {
    state.program = selected.program;
    changed("program");
  }
  if (address) writeAddress();
  changed(focus ? "selected" : "selected quietly");
}

function show(program) {
  state.program = program;
  if (state.selected && state.selected.kind === "kernel") {
    const [kernel] = kernelsOf(program, selectedOps()); // the same operations, in the other program
    state.selected = kernel ? { kind: "kernel", program, id: kernel.number } : null;
  }
  writeAddress();
  changed("program");
  changed("selected quietly");
}

function selectedOps(selected = state.selected) {
  if (!selected) return [];
  if (selected.kind === "kernel") return D.programs[selected.program].kernels[selected.id].members;
  if (selected.kind === "op") return [selected.id];
  if (selected.kind === "group") return D.groups.of.flatMap((g, i) => (g === selected.id ? [i] : []));
  return linesOf.get(`${selected.file}:${selected.line}`) || [];
}

function addressOf(selected) {
  if (!selected) return "";
  if (selected.kind === "kernel") {
    const word = selected.program === 0 ? "xla" : selected.program === 1 ? "kernel" : "other";
    return `${word}=${encodeURIComponent(D.programs[selected.program].kernels[selected.id].slug)}`;
  }
  if (selected.kind === "op") return `op=${encodeURIComponent(D.ops.name[selected.id])}`;
  if (selected.kind === "group") return `group=${selected.id}`;
  return `line=${encodeURIComponent(lineName(selected.file, selected.line))}`;
}

function writeAddress() {
  const address = "#" + addressOf(state.selected) + (state.program === 1 ? "" : `&view=${state.program}`);
  if (location.hash !== address && !(address === "#" && !location.hash)) history.pushState(null, "", address);
}

/** What the address says is chosen; sets the program that is shown. */
function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  state.program = D.programs[asked.get("view")] ? Number(asked.get("view")) : 1;
  for (const [program, word] of [[0, "xla"], [1, "kernel"], [2, "other"]]) {
    if (!asked.has(word) || !D.programs[program]) continue;
    const id = D.programs[program].kernels.findIndex((k) => k.slug === asked.get(word));
    if (id < 0) continue;
    state.program = program;
    return { kind: "kernel", program, id };
  }
  if (asked.has("op")) {
    const id = D.ops.name.indexOf(asked.get("op"));
    if (id >= 0) return { kind: "op", id };
  }
  if (asked.has("group") && D.groups && D.groups.label[asked.get("group")]) return { kind: "group", id: Number(asked.get("group")) };
  if (asked.has("line")) {
    const [, file, line] = /^(.*):(\d+)$/.exec(asked.get("line")) || [];
    const found = D.files.findIndex((f) => f.name === file);
    if (found >= 0 && linesOf.has(`${found}:${line}`)) return { kind: "line", file: found, line: Number(line) };
  }
  return null;
}
