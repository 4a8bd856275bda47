"""JAX programs whose HLO covers what XLA prints: each is compiled for the CPU and for a described GPU.

Run as a script, `python programs.py OUT [--gpu] [NAME ...]`, it writes `OUT/NAME.{lowered,cpu,gpu}.hlo`. A `NAME.gpu`
is compiled for the GPU without `--gpu`; with `--others`, all programs that are not named, but for large ones, are
lowered.
It is a process of its own because the number of host devices is fixed when JAX starts.
"""

from __future__ import annotations

import os
import pathlib
import sys

if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_SKIP_CUDA_CONSTRAINTS_CHECK", "1")
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    # Of the machine code nothing is looked at.
    os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0"

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _hlo

f32, bf16, f16, s32, u32 = jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.uint32


def a(*dims: int, dtype: Any = f32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, dtype)


def layer_norm(x, g):
    m = x.mean(-1, keepdims=True)
    return (x - m) * lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g


def attention(x, wq, wk, wv):
    q, k, v = x @ wq, x @ wk, x @ wv
    return jax.nn.softmax(jnp.where(jnp.tri(q.shape[-2], dtype=bool), q @ k.mT / 8, -1e30)) @ v


def mlp_loss(params, x, y):
    for w, b in params:
        x = jax.nn.gelu(x @ w + b)
    return optax.softmax_cross_entropy_with_integer_labels(x, y).mean()


MLP = [(a(32, 64), a(64)), (a(64, 10), a(10))]


def adam_step(params, x, y):
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    updates, state = tx.update(jax.grad(mlp_loss)(params, x, y), tx.init(params), params)
    return optax.apply_updates(params, updates), state


def conv(x, w, **kwargs):
    return lax.conv_general_dilated(x, w, dimension_numbers=("NHWC", "HWIO", "NHWC"), **kwargs)


def batch_norm(x, g, b):
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * lax.rsqrt(var + 1e-5) * g + b


def cart_pole(state):
    def step(s, _):
        x, v, t, w = s
        force = jnp.where(t > 0, 10.0, -10.0)
        acc = (force + 0.05 * w * w * jnp.sin(t)) / 1.1
        s = jnp.stack([x + 0.02 * v, v + 0.02 * acc, t + 0.02 * w, w + 0.02 * (9.8 * jnp.sin(t) - acc)])
        return s, s[0]

    return lax.scan(step, state, None, length=20)


def lstm(xs, h, c, w):
    def cell(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ w, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(cell, (h, c), xs)


def random_walk(key):
    def step(i, s):
        key, x = s
        key, sub = jax.random.split(key)
        return key, x + jax.random.normal(sub, x.shape)

    return lax.fori_loop(0, 5, step, (key, jnp.zeros(8)))


def newton(x):
    return lax.while_loop(lambda v: jnp.abs(v * v - 2) > 1e-6, lambda v: v - (v * v - 2) / (2 * v), x)


def branches(i, x):
    return lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * 2], x), lax.cond(x[0] > 0, jnp.exp, jnp.negative, x)


def many_unary(x):
    ops = [jnp.sin, jnp.cos, jnp.tan, jnp.tanh, jnp.exp, jnp.log1p, jnp.expm1, jnp.cbrt, jnp.sign, jnp.floor, jnp.ceil]
    ops += [lax.rsqrt, lax.erf, lax.erf_inv, lax.lgamma, lax.digamma, jnp.round, jnp.isfinite, lax.asinh, lax.is_finite]
    return [op(x) for op in ops]


def integers(x, y):
    return (
        lax.population_count(x), lax.clz(x), x ^ y, x & y, x | ~y, lax.shift_left(x, y),
        lax.shift_right_arithmetic(x, y), lax.shift_right_logical(x, y), x // y, lax.rem(x, y), lax.integer_pow(x, 3),
    )  # fmt: skip


def constants(x):
    big = jnp.asarray(np.linspace(-1, 1, 600, dtype=np.float32).reshape(20, 30))
    odd = jnp.asarray(np.array([np.nan, np.inf, -np.inf, 1e-45, 3.4e38], np.float32))
    return x @ big, odd * x[0, 0], jnp.asarray(np.arange(24).reshape(2, 3, 2, 2)), jnp.array([True, False])


def low_precision(x):
    y = [
        x.astype(t).astype(f32)
        for t in (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3b11fnuz, jnp.int4, jnp.uint4)
    ]
    return y, x.astype(bf16) * 2, lax.reduce_precision(x, 5, 10), lax.bitcast_convert_type(x, u32)


def gathers(x, i):
    return x[i], x[:, i], x.at[i].add(1.0), x.at[i].set(0.0), x.at[i].max(2.0), jnp.take_along_axis(x, i[:, None], 1)


def slices(x, i):
    y = lax.dynamic_slice(x, (i, 0), (2, 3))
    return lax.dynamic_update_slice(x, y * 2, (0, i)), x[1:7:2, ::-1], lax.pad(x, 0.0, ((1, 2, 1), (-1, 0, 0)))


def sorts(x, y):
    return (
        lax.sort((x, y), num_keys=1, is_stable=True),
        jnp.argsort(x),
        lax.top_k(x, 3),
        jnp.median(x),
        jnp.unique(y, size=4),
    )


def reductions(x):
    return (
        x.sum((0, 2)), x.max(1), x.argmax(-1), jnp.cumsum(x, 0), jax.nn.logsumexp(x, 1), x.prod(), (x > 0).any(),
        lax.reduce_window(x, 0.0, lax.add, (1, 3, 3), (1, 2, 2), "SAME"), lax.cummax(x, 1),
    )  # fmt: skip


def pooling_gradient(x):
    return jax.grad(lambda v: lax.reduce_window(v, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum())(x)


def fourier(x):
    return jnp.fft.rfft2(x), jnp.fft.fft(x), jnp.fft.irfft(jnp.fft.rfft(x)), jnp.fft.ifft(x + 1j * x)


def linear_algebra(x, b):
    s = x @ x.T + 10 * jnp.eye(x.shape[0])
    return jnp.linalg.cholesky(s), jnp.linalg.solve(s, b), lax.linalg.triangular_solve(s, b, left_side=True, lower=True)


def decompositions(x):
    return jnp.linalg.qr(x), jnp.linalg.eigh(x + x.T), jnp.linalg.svd(x)


def random_numbers(key):
    r = jax.random
    return (
        r.normal(key, (64,)),
        r.bernoulli(key, 0.3, (8,)),
        r.randint(key, (5,), 0, 9),
        r.permutation(key, 10),
        r.gamma(key, 2.0),
    )


def dots(x, y):
    return (
        lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))), preferred_element_type=f32),
        jnp.einsum("bij,bjk->kb", x, y), lax.dot(x[0].astype(bf16), y[0].astype(bf16), precision=lax.Precision.HIGHEST),
        x[0].astype(jnp.int8) @ y[0].astype(jnp.int8),
    )  # fmt: skip


def ode(x):
    def f(v, _):
        k1 = jnp.sin(v)
        k2 = jnp.sin(v + 0.05 * k1)
        return v + 0.1 * k2, None

    return lax.scan(f, x, None, length=7)[0]


def checkpointed(x, w):
    return jax.grad(lambda w: jax.checkpoint(lambda v: jnp.tanh(v @ w))(x).sum())(w)


def transformer(params, tokens):
    x = params["embedding"][tokens]
    for p in params["layers"]:
        x = x + attention(layer_norm(x, p["g"]), p["q"], p["k"], p["v"])
        x = x + jax.nn.gelu(layer_norm(x, p["g"]) @ p["up"]) @ p["down"]
    return optax.softmax_cross_entropy_with_integer_labels(x @ params["embedding"].T, tokens).mean()


def transformer_arguments(layers: int, d: int = 64, vocabulary: int = 100, batch: int = 2, length: int = 32) -> tuple:
    block = {"g": a(d), "q": a(d, d), "k": a(d, d), "v": a(d, d), "up": a(d, 4 * d), "down": a(4 * d, d)}
    return {"embedding": a(vocabulary, d), "layers": [block] * layers}, a(batch, length, dtype=s32)


def training_step(params, tokens):
    tx = optax.adamw(1e-3)
    updates, state = tx.update(jax.grad(transformer)(params, tokens), tx.init(params), params)
    return optax.apply_updates(params, updates), state


def mesh() -> Mesh:
    return Mesh(np.array(jax.devices("cpu")[:8]).reshape(4, 2), ("x", "y"))


def sharded(f: Callable, inputs: tuple, outputs: Any) -> Callable:
    return lambda *args: jax.shard_map(f, mesh=mesh(), in_specs=inputs, out_specs=outputs, check_vma=False)(*args)


P = PartitionSpec


def collectives(x):
    return (
        lax.psum(x, "x"), lax.pmax(x, ("x", "y")), lax.all_gather(x, "y"), lax.psum_scatter(x, "y", tiled=True),
        lax.all_to_all(x, "y", 0, 1, tiled=True), lax.ppermute(x, "x", [(0, 1), (1, 2), (2, 3), (3, 0)]),
        lax.axis_index("y") + 0 * x,
    )  # fmt: skip


def constrained(x, w):
    x = lax.with_sharding_constraint(x, NamedSharding(mesh(), P("x", None)))
    return lax.with_sharding_constraint(x @ w, NamedSharding(mesh(), P(None, "y")))


PROGRAMS: dict[str, tuple[Callable, tuple]] = {
    "layer_norm": (layer_norm, (a(64, 128), a(128))),
    "layer_norm_gradient": (jax.grad(lambda x, g: layer_norm(x, g).sum(), (0, 1)), (a(64, 128), a(128))),
    "softmax": (jax.nn.softmax, (a(64, 128),)),
    "softmax_axis_0": (lambda x: jax.nn.softmax(x, 0), (a(64, 128),)),
    "attention": (attention, (a(2, 16, 64), a(64, 64), a(64, 64), a(64, 64))),
    "mlp_loss": (mlp_loss, (MLP, a(8, 32), a(8, dtype=s32))),
    "adam": (adam_step, (MLP, a(8, 32), a(8, dtype=s32))),
    "sgd_bf16": (
        lambda p, g: jax.tree.map(lambda p, g: (p - 0.1 * g).astype(bf16), p, g),
        ([a(4, 4, dtype=bf16)] * 7, [a(4, 4)] * 7),
    ),
    "convolution": (partial(conv, window_strides=(2, 2), padding="SAME"), (a(2, 8, 8, 3), a(3, 3, 3, 4))),
    "dilated_convolution": (
        partial(conv, window_strides=(1, 1), padding=((1, 0), (2, 1)), lhs_dilation=(2, 1), rhs_dilation=(1, 2)),
        (a(2, 8, 8, 3), a(3, 3, 3, 4)),
    ),
    "grouped_convolution": (
        partial(conv, window_strides=(1, 1), padding="VALID", feature_group_count=4),
        (a(2, 8, 8, 4), a(3, 3, 1, 8)),
    ),
    "convolution_gradient": (
        jax.grad(lambda w, x: conv(x, w, window_strides=(1, 1), padding="SAME").sum()),
        (a(3, 3, 3, 4), a(2, 8, 8, 3)),
    ),
    "convolution_1d_bf16": (
        lambda x, w: lax.conv(x, w, (1,), "SAME"),
        (a(2, 3, 16, dtype=bf16), a(4, 3, 3, dtype=bf16)),
    ),
    "batch_norm": (batch_norm, (a(4, 6, 6, 8), a(8), a(8))),
    "batch_norm_gradient": (
        jax.grad(lambda x, g, b: (batch_norm(x, g, b) ** 2).sum(), (0, 1, 2)),
        (a(4, 6, 6, 8), a(8), a(8)),
    ),
    "cart_pole": (cart_pole, (a(4, 16),)),
    "lstm": (lstm, (a(6, 4, 8), a(4, 8), a(4, 8), a(16, 32))),
    "lstm_gradient": (jax.grad(lambda *args: lstm(*args)[1].sum(), 3), (a(6, 4, 8), a(4, 8), a(4, 8), a(16, 32))),
    "random_walk": (random_walk, (a(2, dtype=u32),)),
    "newton": (newton, (a(),)),
    "branches": (branches, (a(dtype=s32), a(8))),
    "many_unary": (many_unary, (a(33),)),
    "integers": (integers, (a(17, dtype=s32), a(17, dtype=s32))),
    "constants": (constants, (a(4, 20),)),
    "low_precision": (low_precision, (a(16),)),
    "gathers": (gathers, (a(8, 8), a(8, dtype=s32))),
    "slices": (slices, (a(8, 8), a(dtype=s32))),
    "sorts": (sorts, (a(16), a(16, dtype=s32))),
    "reductions": (reductions, (a(4, 6, 8),)),
    "pooling_gradient": (pooling_gradient, (a(2, 8, 8, 3),)),
    "fourier": (fourier, (a(8, 16),)),
    "linear_algebra": (linear_algebra, (a(8, 8), a(8, 2))),
    "decompositions": (decompositions, (a(6, 6),)),
    "random_numbers": (random_numbers, (a(2, dtype=u32),)),
    "dots": (dots, (a(3, 8, 8), a(3, 8, 8))),
    "complex": (
        lambda x, y: (x * y, jnp.conj(x) @ y, jnp.abs(x), x.real + y.imag),
        (a(4, 4, dtype=jnp.complex64),) * 2,
    ),
    "ode": (ode, (a(32),)),
    "vmapped_scan": (jax.vmap(ode), (a(3, 32),)),
    "checkpointed": (checkpointed, (a(4, 8), a(8, 8))),
    "transformer": (transformer, transformer_arguments(2)),
    "training_step": (training_step, transformer_arguments(2)),
    "barrier": (lambda x: lax.optimization_barrier((x, x + 1)), (a(4),)),
    "callback_free_empty": (lambda x: (x, jnp.zeros((0, 3)), jnp.ones(())), (a(0, 4),)),
    "collectives": (sharded(collectives, (P("x", "y"),), P()), (a(16, 16),)),
    "sharding_constraints": (constrained, (a(8, 16), a(16, 8))),
}

HOST_ONLY = {"collectives", "sharding_constraints"}
LARGE = {"transformer", "training_step", "decompositions"}


def described_gpu() -> NamedSharding:
    from jax.experimental import topologies

    config = (pathlib.Path(__file__).parent / "h200.txtpb").read_text()
    topology = topologies.get_topology_desc(platform="cuda", topology_name="", target_config=config, topology="1x1x1")
    one = topologies.make_mesh(topo=topology, mesh_shape=(1,), axis_names=("x",))
    return NamedSharding(one, P())


def hlo_text(module: Any) -> str:
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return module.to_string(options)


def main(out: pathlib.Path, words: list[str]) -> None:
    options = {w for w in words if w.startswith("--")}
    forms = {name: form for name, _, form in (w.partition(".") for w in words if w not in options)}
    if not forms:
        forms = dict.fromkeys(PROGRAMS, "")
    if "--gpu" in options:
        forms = dict.fromkeys(forms, "gpu")
    gpu = described_gpu() if "gpu" in forms.values() else None
    for name, form in forms.items():
        write(out, name, gpu if form else None)
    for name in PROGRAMS.keys() - forms.keys() - LARGE if "--others" in options else ():
        write_lowered(out, name)


def write_lowered(out: pathlib.Path, name: str) -> Any:
    f, args = PROGRAMS[name]
    lowered = jax.jit(f).lower(*args)
    (out / f"{name}.lowered.hlo").write_text(hlo_text(lowered.compiler_ir("hlo").get_hlo_module()))
    return lowered


def write(out: pathlib.Path, name: str, gpu: NamedSharding | None) -> None:
    f, args = PROGRAMS[name]
    compiled = write_lowered(out, name).compile()
    (out / f"{name}.cpu.hlo").write_text(hlo_text(compiled.runtime_executable().hlo_modules()[0]))
    if gpu is not None and name not in HOST_ONLY:
        placed = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=gpu), args)
        compiled = jax.jit(f).lower(*placed).compile()
        (out / f"{name}.gpu.hlo").write_text(hlo_text(compiled.runtime_executable().hlo_modules()[0]))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
