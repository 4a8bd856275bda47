"""Throughput of hlo_parser: `python -m bench.parser`.

Compiles the training step of a Transformer for the CPU, with metadata, and measures the parser on the text of the
optimized module: megabytes per second of CPU time, how time grows with the size of the text (0.1 to 20 MB), and peak
memory as a multiple of the text.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import re
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

import hlo_parser


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What a text of so many bytes took: CPU seconds (best of a few), peak bytes allocated while parsing."""

    bytes: int
    instructions: int
    seconds: float
    peak: int

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6

    def __str__(self) -> str:
        return (
            f"{self.bytes / 1e6:8.2f} MB {self.instructions:8d} instructions {self.seconds:8.3f} s "
            f"{self.megabytes_per_second:6.2f} MB/s, memory {self.peak / self.bytes:5.1f} x the text"
        )


def transformer_text(layers: int = 12, width: int = 256) -> str:
    """The optimized module of a training step (forward, gradient, AdamW) of a Transformer, compiled for the CPU."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import jax.numpy as jnp
    from jaxlib import _hlo

    def norm(x: Any, g: Any) -> Any:
        m = x.mean(-1, keepdims=True)
        return (x - m) * jax.lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g

    def block(x: Any, p: dict[str, Any]) -> Any:
        y = norm(x, p["norm"])
        q, k, v = y @ p["q"], y @ p["k"], y @ p["v"]
        scores = jnp.where(jnp.tri(x.shape[1], dtype=bool), q @ k.mT / 16, -1e30)
        x = x + jax.nn.softmax(scores) @ v
        return x + jax.nn.gelu(norm(x, p["norm"]) @ p["up"]) @ p["down"]

    def loss(params: dict[str, Any], tokens: Any) -> Any:
        x = params["embedding"][tokens]
        for p in params["layers"]:
            x = block(x, p)
        logits = x @ params["embedding"].T
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1).mean()

    def step(params: Any, mean: Any, square: Any, tokens: Any) -> Any:
        gradient = jax.grad(loss)(params, tokens)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, gradient)
        update = lambda p, m, s: p - 1e-3 * (m / (jnp.sqrt(s) + 1e-8) + 0.01 * p)  # noqa: E731
        return jax.tree.map(update, params, mean, square), mean, square

    def array(*dims: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dims, jnp.float32)

    d = width
    layer = {
        "norm": array(d),
        "q": array(d, d),
        "k": array(d, d),
        "v": array(d, d),
        "up": array(d, 4 * d),
        "down": array(4 * d, d),
    }
    params = {"embedding": array(1000, d), "layers": [layer] * layers}
    compiled = jax.jit(step).lower(params, params, params, jax.ShapeDtypeStruct((4, 128), jnp.int32)).compile()
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    executable: Any = compiled.runtime_executable()
    return str(executable.hlo_modules()[0].to_string(options))


def of_size(text: str, size: int) -> str:
    """A module of about `size` bytes: the computations of `text` but the entry, as often as needed, and then the entry.

    Names of computations get a suffix in each copy, so that no two texts of attributes repeat because of the copying.
    """
    start = re.search(r"^%", text, re.MULTILINE)
    entry = text.index("\nENTRY ")
    assert start is not None
    head, body, tail = text[: start.start()], text[start.start() : entry], text[entry:]
    defined = re.findall(r"^%([\w.\-]+) ", body, re.MULTILINE)
    calls = re.compile(rf"%({'|'.join(sorted(map(re.escape, defined), key=len, reverse=True))})(?![\w.\-])")
    if size <= len(head) + len(body) + len(tail):
        # Whole computations from the front: each calls only those before it. The last is the entry then.
        end = body.rfind("\n}\n", 0, max(size - len(head), body.index("\n}\n") + 3)) + 3
        return head.split("\n")[0].split(",")[0] + "\n\n" + body[:end]
    parts = [head, body]
    for n in range(1, (size - len(head) - len(tail)) // len(body)):
        parts.append(calls.sub(rf"%\1.copy{n}", body))
    return "".join([*parts, tail])


def measure(text: str, repeats: int = 3) -> Measurement:
    seconds = min(_time(lambda: hlo_parser.parse(text)) for _ in range(repeats))
    gc.collect()
    tracemalloc.start()
    module = hlo_parser.parse(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Measurement(len(text), sum(map(len, module.computations)), seconds, peak)


def _time(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def growth(points: list[Measurement]) -> float:
    """The exponent b of seconds = a * bytes ** b, by least squares: 1 is linear."""
    sizes, seconds = np.log([p.bytes for p in points]), np.log([p.seconds for p in points])
    return float(np.polyfit(sizes, seconds, 1)[0])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "bench.parser", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=12, help="of the Transformer")
    parser.add_argument("--largest", type=float, default=20.0, help="MB of the largest text")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    text = transformer_text(options.layers)
    transformer = measure(text)
    sizes = [s for s in (0.1, 0.3, 1.0, 3.0, 10.0, 20.0) if s <= options.largest]
    points = [measure(of_size(text, int(size * 1e6)), repeats=3 if size < 5 else 2) for size in sizes]
    printing = _time(lambda: str(hlo_parser.parse(text))) - transformer.seconds
    exponent = growth(points)
    if options.json:
        rows = [dataclasses.asdict(p) for p in points]
        print(
            json.dumps({"transformer": dataclasses.asdict(transformer), "points": rows, "exponent": exponent}, indent=2)
        )
        return 0
    print(f"training step of a {options.layers}-layer Transformer, optimized for the CPU:\n{transformer}")
    print(f"printing it: {len(text) / printing / 1e6:.2f} MB/s")
    print("texts made of its computations:", *points, f"time grows as bytes ^ {exponent:.2f}", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
