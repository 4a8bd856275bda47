"""Chains of rigid bodies: small matrices and vectors, in straight code and in loops."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from bench.small.made import Made, Program, normal, uniform


def _joint(angle: Any, offset: Any) -> Any:
    """A turn about z, then a shift, as a 4x4 matrix."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    zero, one = jnp.zeros_like(c), jnp.ones_like(c)
    return jnp.array(
        [[c, -s, zero, offset[0]], [s, c, zero, offset[1]], [zero, zero, one, offset[2]], [zero] * 3 + [one]]
    )


def _end(angles: Any, offsets: Any) -> Any:
    tilt = jnp.array([[1, 0, 0, 0], [0, 0, -1, 0], [0, 1, 0, 0], [0, 0, 0, 1]], angles.dtype)
    found = jnp.eye(4, dtype=angles.dtype)
    for k in range(angles.shape[0]):
        found = found @ _joint(angles[k], offsets[k]) @ tilt
    return found[:3, 3]


def chain(joints: int = 7) -> Made:
    """Where an arm ends: a product of 4x4 matrices for each joint."""
    return _end, (normal(0, joints), uniform(1, 0.1, 0.5, joints, 3))


def chain_gradient(joints: int = 7) -> Made:
    """The gradient of the distance to a target with respect to the angles."""

    def loss(angles: Any, offsets: Any, target: Any) -> Any:
        return jnp.sum((_end(angles, offsets) - target) ** 2)

    return jax.grad(loss), (normal(0, joints), uniform(1, 0.1, 0.5, joints, 3), normal(2, 3))


def chain_scan(joints: int = 35) -> Made:
    """All frames of a long chain by a scan of 4x4 products."""

    def run(angles: Any, offsets: Any) -> Any:
        def step(frame: Any, joint: Any) -> Any:
            frame = frame @ _joint(*joint)
            return frame, frame[:3, 3]

        return jax.lax.scan(step, jnp.eye(4, dtype=angles.dtype), (angles, offsets))[1]

    return run, (normal(0, joints), uniform(1, 0.1, 0.5, joints, 3))


def _pendulums(angles: Any, speeds: Any, lengths: Any) -> Any:
    """Accelerations of a chain of pendulums: the mass matrix is solved by elimination, written out."""
    count = angles.shape[0]
    left = count - jnp.maximum(jnp.arange(count)[:, None], jnp.arange(count)[None, :])
    apart = angles[:, None] - angles[None, :]
    mass = left * lengths[:, None] * lengths[None, :] * jnp.cos(apart)
    force = -(left * lengths[:, None] * lengths[None, :] * jnp.sin(apart)) @ speeds**2
    force = force - 9.8 * jnp.arange(count, 0, -1) * lengths * jnp.sin(angles)
    for k in range(count):
        factors = jnp.where(jnp.arange(count) > k, mass[:, k] / mass[k, k], 0)
        mass, force = mass - factors[:, None] * mass[k], force - factors * force[k]
    found = jnp.zeros_like(force)
    for k in reversed(range(count)):
        found = found.at[k].set((force[k] - mass[k] @ found) / mass[k, k])
    return found


def pendulums(count: int = 4, steps: int = 50) -> Made:
    """A chain of pendulums for some steps."""

    def run(angles: Any, lengths: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            q, v = carry
            v = v + 0.005 * _pendulums(q, v, lengths)
            return (q + 0.005 * v, v), q

        return jax.lax.scan(step, (angles, jnp.zeros_like(angles)), None, length=steps)

    return run, (normal(0, count, scale=0.5), uniform(1, 0.5, 1.0, count))


def rigid(batch: int = 8, steps: int = 50) -> Made:
    """Quaternions of some turning bodies, with their momenta in their own frames."""

    def run(turn: Any, spin: Any, inertia: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            q, w = carry
            w = w + 0.01 * jnp.cross(inertia * w, w) / inertia
            x, y, z = w[:, 0], w[:, 1], w[:, 2]
            zero = jnp.zeros_like(x)
            rate = jnp.stack(
                [jnp.stack(r, -1) for r in ((zero, -x, -y, -z), (x, zero, z, -y), (y, -z, zero, x), (z, y, -x, zero))],
                1,
            )
            q = q + 0.005 * jnp.einsum("bij,bj->bi", rate, q)
            return (q / jnp.linalg.norm(q, axis=-1, keepdims=True), w), q

        return jax.lax.scan(step, (turn, spin), None, length=steps)

    turn = normal(0, batch, 4)
    return run, (turn, normal(1, batch, 3), uniform(2, 0.5, 2.0, batch, 3))


PROGRAMS = (
    Program("chain", "robot dynamics", functools.partial(chain)),
    Program("chain_gradient", "robot dynamics", chain_gradient),
    Program("chain_scan", "robot dynamics", chain_scan),
    Program("pendulums", "robot dynamics", pendulums),
    Program("rigid", "robot dynamics", rigid),
)
