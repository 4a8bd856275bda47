// Elements made of plain text, and numbers as the Python side writes them.

const byId = (id) => document.getElementById(id);

/** An element; what is given as text stays text, whatever is in it. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    else if (name === "style") Object.assign(made.style, value);
    else if (name === "class") made.className = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== ""));
  return made;
}

function three(value) {
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  const text = value.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function formatBytes(count) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(count) < 999.5) return unit === "B" ? `${Math.round(count)} B` : `${three(count)} ${unit}`;
    count /= 1000;
  }
  return `${three(count)} TB`;
}

function formatSeconds(seconds) {
  if (seconds < 0) return "-" + formatSeconds(-seconds);
  if (seconds === 0) return "0 s";
  for (const [unit, scale] of [["s", 1], ["ms", 1e3], ["us", 1e6]])
    if (seconds * scale >= 0.9995) return `${three(seconds * scale)} ${unit}`;
  return `${three(seconds * 1e9)} ns`;
}

const formatCount = (count) => count.toLocaleString("en-US");
const formatRatio = (value, of) => (of ? (value / of).toFixed(2) + "x" : "-");
const formatShare = (share) => (share >= 0.0995 ? Math.round(share * 100) + "%" : share >= 0.0005 ? (share * 100).toFixed(1) + "%" : share > 0 ? "<.1%" : "");
const many = (count, word, plural) => `${formatCount(count)} ${count === 1 ? word : plural || word + "s"}`;
