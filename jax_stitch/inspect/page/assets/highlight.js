// Words of C++ and Python marked by kind. The text itself stays text.

const C_WORDS = "alignas auto bool break case char const constexpr continue do double else extern float for if inline int int8_t int16_t int32_t int64_t long namespace return short signed sizeof static struct switch template typename uint8_t uint16_t uint32_t uint64_t unsigned using void while __global__ __device__ __shared__ __launch_bounds__";
const PYTHON_WORDS = "and as assert async await break class continue def del elif else except finally for from global if import in is lambda None nonlocal not or pass raise return try while with yield True False";
const KINDS = ["comment", "string", "keyword", "number-word"];
const NUMBER = "\\b(?:0[xX][0-9a-fA-F]+|\\d+\\.?\\d*(?:[eE][-+]?\\d+)?)[fFuUlL]*\\b";
const words = (list) => `\\b(?:${list.split(" ").join("|")})\\b`;
const TOKENS = {
  c: new RegExp(`(//[^\\n]*|/\\*[\\s\\S]*?\\*/|^[ \\t]*#[^\\n]*)|("(?:\\\\.|[^"\\\\\\n])*")|(${words(C_WORDS)})|(${NUMBER})`, "gm"),
  python: new RegExp(`(#[^\\n]*)|([rbf]?(?:"(?:\\\\.|[^"\\\\])*"|'(?:\\\\.|[^'\\\\])*'))|(${words(PYTHON_WORDS)})|(${NUMBER})`, "g"),
};

function highlighted(code, language) {
  const parts = [];
  let end = 0;
  for (const match of code.matchAll(TOKENS[language])) {
    if (match.index > end) parts.push(code.slice(end, match.index));
    const kind = KINDS[match.slice(1).findIndex((group) => group !== undefined)];
    parts.push(el("span", { class: kind }, match[0]));
    end = match.index + match[0].length;
  }
  parts.push(code.slice(end));
  return parts;
}
