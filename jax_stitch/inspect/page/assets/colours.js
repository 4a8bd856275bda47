// A colour for each kernel: hues far apart for kernels made one after the other; grey for what libraries run.

const dark = window.matchMedia("(prefers-color-scheme: dark)");

function colour(kernel, alpha = 1) {
  if (!kernel) return dark.matches ? `rgba(120,130,140,${alpha})` : `rgba(150,158,166,${alpha})`;
  if (kernel.kind === "library") return dark.matches ? `hsla(210,8%,52%,${alpha})` : `hsla(210,9%,62%,${alpha})`;
  const hue = Math.round((kernel.order * 137.508 + 24) % 360);
  // What is left to XLA beside stitched kernels is paler than these.
  const pale = kernel.program > 0 && kernel.kind === "xla";
  const saturation = pale ? 22 : 66;
  const light = dark.matches ? (pale ? 42 : 56) : pale ? 74 : 58;
  return `hsla(${hue},${saturation}%,${light}%,${alpha})`;
}

const swatch = (kernel) => el("span", { class: "swatch", style: { background: colour(kernel) } });
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
