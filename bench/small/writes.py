"""Loops that write rows, read single elements, count and choose: indexed accesses to carried arrays."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from bench.small.made import Made, Program, normal, uniform


def row_writes(rows: int, places: str, steps: int = 500) -> Made:
    """Return a loop that writes a row per iteration: at its number, at it modulo the rows, or at an index from data."""
    given = np.random.default_rng(1).integers(0, rows, steps, np.int32)

    def run(buffer: Any, h: Any, inputs: Any, given: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            buffer, i, h = carry
            q, at = x
            place = {"step": i, "modulo": i % rows, "data": at}[places]
            buffer = lax.dynamic_update_index_in_dim(buffer, jnp.tanh(q + h), place, 0)
            return (buffer, i + 1, jnp.tanh(0.9 * h + q)), None

        return lax.scan(step, (buffer, jnp.int32(0), h), (inputs, given))[0]

    return run, (normal(0, rows, 8), normal(1, 8), normal(2, steps, 8), given)


def put_and_read(rows: int = 1000, steps: int = 300) -> Made:
    """Return a loop that writes rows and reads them in later iterations."""

    def run(buffer: Any, h: Any) -> Any:
        def step(i: Any, carry: Any) -> Any:
            buffer, h = carry
            h = jnp.sin(h + buffer[(7 * i) % rows])
            return buffer.at[(3 * i) % rows].set(h), h

        return lax.fori_loop(0, steps, step, (buffer, h))

    return run, (normal(0, rows, 8), normal(1, 8))


def replay_buffer(size: int = 256, steps: int = 200) -> Made:
    """Return a loop that stores transitions in ring buffers and samples from them in each iteration."""
    drawn = np.random.default_rng(3).integers(0, size, (steps, 4), np.int32)

    def run(states: Any, rewards: Any, state: Any, drawn: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            states, rewards, state, i = carry
            k, picked = x
            reward = -jnp.sum(state * state)
            states = states.at[k % size].set(state)
            rewards = rewards.at[k % size].set(reward)
            state = jnp.tanh(1.1 * state + 0.1 * states[picked].mean(0))
            return (states, rewards, state, i + 1), rewards[picked].sum()

        start = (states, rewards, state, jnp.int32(0))
        return lax.scan(step, start, (jnp.arange(steps, dtype=jnp.int32), drawn))

    return run, (normal(0, size, 6), normal(1, size), normal(2, 6), drawn)


def delay_line(taps: int = 64, steps: int = 1000) -> Made:
    """Return a comb filter whose delay line is a ring buffer."""

    def run(line: Any, signal: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            line, i = carry
            y = x + 0.7 * line[i]
            return (line.at[i].set(y), (i + 1) % taps), y

        return lax.scan(step, (line, jnp.int32(0)), signal)

    return run, (normal(0, taps), normal(1, steps))


def pops(size: int = 1000, steps: int = 500) -> Made:
    """Return a loop that shifts the elements after a data-dependent index by one in each iteration."""
    places = np.random.default_rng(2).integers(0, size - 20, steps, np.int32)

    def run(c: Any, places: Any) -> Any:
        def step(c: Any, i: Any) -> Any:
            return lax.dynamic_update_slice(c, lax.dynamic_slice(c, (i + 1,), (16,)), (i,)), c[i]

        return lax.scan(step, c, places)

    return run, (normal(0, size), places)


def key_value_cache(heads: int = 4, length: int = 64, width: int = 16) -> Made:
    """Return attention that decodes token by token, with keys and values in caches."""

    def run(keys: Any, values: Any, x: Any, w: Any) -> Any:
        def step(carry: Any, i: Any) -> Any:
            keys, values, x = carry
            q, k, v = (jnp.tanh(x @ w[j]).reshape(heads, width) for j in range(3))
            keys = lax.dynamic_update_index_in_dim(keys, k, i, 0)
            values = lax.dynamic_update_index_in_dim(values, v, i, 0)
            scores = jnp.einsum("hd,lhd->hl", q, keys)
            scores = jnp.where(jnp.arange(length) <= i, scores, -1e9)
            out = jnp.einsum("hl,lhd->hd", jax.nn.softmax(scores), values).reshape(-1)
            return (keys, values, jnp.tanh(x + out)), out

        return lax.scan(step, (keys, values, x), jnp.arange(length, dtype=jnp.int32))

    caches = np.zeros((length, heads, width))
    return run, (caches, caches, normal(0, heads * width), normal(1, 3, heads * width, heads * width, scale=0.1))


def value_iteration(states: int = 100, actions: int = 8, sweeps: int = 100) -> Made:
    """Return value iteration for a Markov decision process."""

    def run(transitions: Any, rewards: Any) -> Any:
        def sweep(v: Any, _: Any) -> Any:
            q = rewards + 0.95 * transitions @ v
            return jnp.max(q, 0), jnp.argmax(q, 0)

        return lax.scan(sweep, jnp.zeros_like(rewards[0]), None, length=sweeps)

    transitions = uniform(0, 0.0, 1.0, actions, states, states)
    return run, (transitions / transitions.sum(-1, keepdims=True), normal(1, actions, states))


def savings(assets: int = 120, income: int = 7) -> Made:
    """Return a consumer's savings problem: a while loop that takes the best choice over a grid."""

    def run(utility: Any, chances: Any) -> Any:
        def body(carry: Any) -> Any:
            v, _, i = carry
            expected = chances @ v.T
            new = jnp.max(utility + 0.9 * expected[None], axis=2)
            return new, jnp.max(jnp.abs(new - v)), i + 1

        def goes(carry: Any) -> Any:
            return (carry[1] > 1e-3) & (carry[2] < 60)

        start = (jnp.zeros_like(utility[..., 0]), jnp.ones_like(utility[0, 0, 0]), jnp.int32(0))
        return lax.while_loop(goes, body, start)[0]

    chances = uniform(1, 0.0, 1.0, income, income)
    return run, (normal(0, assets, income, assets), chances / chances.sum(1, keepdims=True))


def q_learning(states: int = 50, actions: int = 4, steps: int = 1000) -> Made:
    """Return Q-learning: each iteration changes one element of a table of values."""
    rng = np.random.default_rng(0)
    seen = rng.integers(0, states, (steps, 2), np.int32)
    taken = rng.integers(0, actions, steps, np.int32)

    def run(table: Any, seen: Any, taken: Any, rewards: Any) -> Any:
        def step(table: Any, x: Any) -> Any:
            s, a, r = x
            error = r + 0.9 * table[s[1]].max() - table[s[0], a]
            return table.at[s[0], a].add(0.1 * error), error

        return lax.scan(step, table, (seen, taken, rewards))

    return run, (normal(1, states, actions), seen, taken, normal(2, steps))


def histogram_loop(bins: int = 64, count: int = 2000) -> Made:
    """Return a weighted histogram by a loop over elements."""

    def run(x: Any) -> Any:
        places = jnp.clip((x * bins).astype(jnp.int32), 0, bins - 1)
        return lax.fori_loop(0, count, lambda i, c: c.at[places[i]].add(x[i]), jnp.zeros(bins, x.dtype))

    return run, (uniform(0, 0.0, 1.0, count),)


def narrow_counter(steps: int = 1000, size: int = 256) -> Made:
    """Return a loop that reads a table at an 8-bit counter, which wraps around."""

    def run(table: Any, x: Any) -> Any:
        def step(carry: Any, v: Any) -> Any:
            c, phase = carry
            phase = 0.9 * phase + v * table[c]
            return (c + jnp.uint8(3), phase), phase

        return lax.scan(step, (jnp.uint8(0), x[0]), x)

    return run, (normal(0, size), normal(1, steps))


def bubble(size: int = 64) -> Made:
    """Return a bubble sort, which swaps neighbours that are out of order."""

    def run(x: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            at = i % (size - 1)
            a, b = x[at], x[at + 1]
            return x.at[at].set(jnp.minimum(a, b)).at[at + 1].set(jnp.maximum(a, b))

        return lax.fori_loop(0, size * size, step, x)

    return run, (normal(0, size),)


def beam(width: int = 4, words: int = 100, steps: int = 20) -> Made:
    """Return a beam search: the best few sequences, by top-k in each iteration."""

    def run(scores: Any, table: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            kept, last = carry
            found, at = lax.top_k((kept[:, None] + table[last] + x[None]).reshape(-1), width)
            return (found, at % words), at // words

        start = (jnp.zeros_like(scores[0, :width]), jnp.arange(width, dtype=jnp.int32))
        return lax.scan(step, start, scores)

    return run, (normal(0, steps, words), normal(1, words, words))


def viterbi(states: int = 16, steps: int = 100) -> Made:
    """Return the likeliest path through a hidden Markov model, by a forward and a backward loop."""

    def run(moves: Any, seen: Any) -> Any:
        def forth(v: Any, x: Any) -> Any:
            sums = v[:, None] + moves
            return sums.max(0) + x, sums.argmax(0)

        last, came = lax.scan(forth, seen[0], seen[1:])
        end = jnp.argmax(last)
        return last, lax.scan(lambda s, row: (row[s], s), end, came, reverse=True)

    return run, (normal(0, states, states), normal(1, steps, states))


def fibonacci_rows(rows: int = 200, width: int = 64) -> Made:
    """Return a dynamic program in an array: each row is computed from the two before it."""

    def run(table: Any) -> Any:
        def step(i: Any, t: Any) -> Any:
            return t.at[i].set(jnp.tanh(t[i - 1] + 0.5 * t[i - 2]))

        return lax.fori_loop(2, rows, step, table)

    return run, (normal(0, rows, width),)


def edit_distance(length: int = 64) -> Made:
    """Return the edit distance of two words, computed row by row of a table."""
    words = np.random.default_rng(0).integers(0, 4, (2, length), np.int32)

    def run(words: Any, costs: Any) -> Any:
        one, other = words
        start = jnp.arange(length + 1) * costs[0]

        def row(before: Any, letter: Any) -> Any:
            best = jnp.minimum(before[1:] + costs[0], before[:-1] + jnp.where(other == letter, 0 * costs[1], costs[1]))
            left = before[0] + costs[0]

            def along(carry: Any, b: Any) -> Any:
                new = jnp.minimum(b, carry + costs[0])
                return new, new

            return jnp.concatenate([left[None], lax.scan(along, left, best)[1]]), None

        return lax.scan(row, start, one)[0]

    return run, (words, np.array([1.0, 1.5]))


PROGRAMS = (
    Program("row_writes_10000", "buffers in loops", functools.partial(row_writes, 10_000, "step")),
    Program("row_writes_modulo", "buffers in loops", functools.partial(row_writes, 1000, "modulo")),
    Program("row_writes_data", "buffers in loops", functools.partial(row_writes, 1000, "data")),
    Program("put_and_read", "buffers in loops", put_and_read),
    Program("replay_buffer", "reinforcement learning", replay_buffer),
    Program("delay_line", "audio filters", delay_line),
    Program("pops", "stacks and queues", pops),
    Program("key_value_cache", "decoders", key_value_cache),
    Program("value_iteration", "reinforcement learning", value_iteration),
    Program("savings", "economics", savings),
    Program("q_learning", "reinforcement learning", q_learning),
    Program("histogram_loop", "counts", histogram_loop),
    Program("narrow_counter", "wavetables", narrow_counter),
    Program("bubble", "exchanges", bubble),
    Program("beam", "decoders", beam),
    Program("viterbi", "hidden Markov models", viterbi),
    Program("fibonacci_rows", "dynamic programs", fibonacci_rows),
    Program("edit_distance", "dynamic programs", edit_distance),
)
