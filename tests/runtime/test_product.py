"""The host's blocks of rows and vectors in a product: exact on whole numbers, whatever is left at the ends."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from jax_stitch.backend.compile import toolchain
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.backend.compile.host import FLAGS
from tests.runtime.conftest import parameters
from tests.some import some

CASES = [
    *[("float", rows, places) for rows in (1, 2, 3, 5, 7, 8) for places in (1, 7, 8, 13, 16, 50, 128, 400)],
    *[("double", rows, places) for rows in (1, 4, 6, 8) for places in (3, 8, 33, 100)],
]
"""Rows, and the places of a chunk."""
APART = [
    *[("float", matrices, places) for matrices in (2, 3, 4, 8) for places in (1, 7, 8, 13, 16, 50, 128)],
    *[("double", matrices, places) for matrices in (2, 4) for places in (3, 8, 33)],
]
"""Matrices that one row is multiplied by, and the places of a chunk."""
STEPS = 11
ARCHITECTURES = ("native", "x86-64", "sandybridge", "haswell", "skylake-avx512")
"""Vectors of this processor, of 16 bytes, of 32 without and with multiplication and addition in one, and of 64."""


def source(numbers: Iterable[int]) -> str:
    text = '#include "stitch.h"\n'
    for k in numbers:
        t, rows, places = CASES[k]
        lefts = ", ".join(f"left + {r} * {3 * STEPS}" for r in range(rows))
        sums = ", ".join(f"sums + {r} * {places}" for r in range(rows))
        text += (
            f'extern "C" void product_{k}(const {t}* left, const {t}* right, {t}* sums, int count) {{\n'
            f"  const {t}* const lefts[] = {{{lefts}}};\n  {t}* const totals[] = {{{sums}}};\n"
            f"  st::product<{places}, false>(lefts, 3, right, {places} + 2, totals, {STEPS}, count);\n}}\n"
            f'extern "C" void first_{k}(const {t}* left, const {t}* right, {t}* sums, int count) {{\n'
            f"  const {t}* const lefts[] = {{{lefts}}};\n  {t}* const totals[] = {{{sums}}};\n"
            f"  st::product<{places}, true>(lefts, 3, right, {places} + 2, totals, {STEPS}, count);\n}}\n"
        )
    for k, (t, matrices, places) in enumerate(APART):
        rights = ", ".join(f"right + {r} * {STEPS * (places + 2)}" for r in range(matrices))
        sums = ", ".join(f"sums + {r} * {places}" for r in range(matrices))
        for name, zero in (("apart", "false"), ("apart_first", "true")):
            text += (
                f'extern "C" void {name}_{k}(const {t}* left, const {t}* right, {t}* sums, int count) {{\n'
                f"  const {t}* const rights[] = {{{rights}}};\n  {t}* const totals[] = {{{sums}}};\n"
                f"  st::product_apart<{places}, {zero}>(left, 3, rights, {places} + 2, totals, {STEPS}, count);\n}}\n"
            )
    return text


@pytest.fixture(scope="module", params=["native", "haswell", "sandybridge"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """For this processor, and for older ones whose instructions it has too."""
    if request.param != "native" and not toolchain.has_avx512():
        pytest.skip("it may lack some of their instructions")
    flags = [f"-march={request.param}" if flag == "-march=native" else flag for flag in FLAGS]
    path: Path = tmp_path_factory.mktemp("products") / "products.so"
    text = source(sorted({given["number"] for given in parameters(request) if "number" in given}))
    path.write_bytes(toolchain.shared_object("products", text, (*flags, "-Wall", "-Werror", f"-I{RUNTIME}")))
    return ctypes.CDLL(str(path))


@pytest.mark.parametrize("number", range(len(CASES)), ids=["-".join(map(str, case)) for case in CASES])
def test_products(library: ctypes.CDLL, number: int) -> None:
    """A row or a vector left out or done twice, a step of another row, a place past the end."""
    dtype, rows, places = CASES[number]
    rng = np.random.default_rng(number)
    left, right, start = (
        rng.integers(-9, 10, dims).astype(np.float32 if dtype == "float" else np.float64)
        for dims in ((rows, STEPS, 3), (STEPS, places + 2), (rows, places))
    )
    for count in {places, places - 1, places // 2, 1}:
        sums = start.copy()
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (left, right, sums)]
        getattr(library, f"product_{number}")(*pointers, ctypes.c_int(count))
        want = start + np.where(np.arange(places) < count, left[:, :, 0] @ right[:, :places], 0)
        np.testing.assert_array_equal(sums, want)


@pytest.mark.parametrize("number", range(len(CASES)), ids=["-".join(map(str, case)) for case in CASES])
def test_products_from_zero(library: ctypes.CDLL, number: int) -> None:
    """What was in the sums before does not count, not even a NaN; what is past the end stays."""
    dtype, rows, places = CASES[number]
    rng = np.random.default_rng(number)
    left, right = (
        rng.integers(-9, 10, dims).astype(np.float32 if dtype == "float" else np.float64)
        for dims in ((rows, STEPS, 3), (STEPS, places + 2))
    )
    for count in {places, places - 1, places // 2, 1}:
        sums = np.full((rows, places), np.nan, left.dtype)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (left, right, sums)]
        getattr(library, f"first_{number}")(*pointers, ctypes.c_int(count))
        want = np.where(np.arange(places) < count, left[:, :, 0] @ right[:, :places], np.nan)
        np.testing.assert_array_equal(sums, want)


@pytest.mark.parametrize("case", range(len(APART)), ids=["-".join(map(str, case)) for case in APART])
def test_products_of_one_row_by_several_matrices(library: ctypes.CDLL, case: int) -> None:
    """A matrix, a vector or a step left out; another one's; a place past the end; sums that do not start at zero."""
    dtype, matrices, places = APART[case]
    rng = np.random.default_rng(case)
    left, right, start = (
        rng.integers(-9, 10, dims).astype(np.float32 if dtype == "float" else np.float64)
        for dims in ((STEPS, 3), (matrices, STEPS, places + 2), (matrices, places))
    )
    made = np.einsum("q,mqv->mv", left[:, 0], right[..., :places])
    for count in {places, places - 1, places // 2, 1}:
        for name, first, others in (("apart", start, start), ("apart_first", np.full_like(start, np.nan), 0)):
            sums = first.copy()
            pointers = [ctypes.c_void_p(a.ctypes.data) for a in (left, right, sums)]
            getattr(library, f"{name}_{case}")(*pointers, ctypes.c_int(count))
            want = np.where(np.arange(places) < count, others + made, first)
            np.testing.assert_array_equal(sums, want)


def test_a_vector_that_several_rows_multiply_is_loaded_once(tmp_path: Path) -> None:
    """Tuned for AMD's processors, GCC made an operand in memory of it: as many loads as multiplications, and those of
    512 bits start one a clock. Products took 15 % longer.
    """
    command = toolchain.compiler()
    if "clang" in toolchain.identity(command) or platform.machine() != "x86_64":
        pytest.skip("reads what GCC writes for x86")
    flags = [flag for flag in FLAGS if flag != "-march=native"] + ["-march=skylake-avx512", "-mtune=znver3"]
    numbers = [CASES.index(("float", rows, 128)) for rows in (3, 5)]
    (tmp_path / "products.cc").write_text(source(numbers).split('extern "C" void apart')[0])
    given = [str(tmp_path / "products.cc"), "-S", "-o", str(tmp_path / "products.s")]
    subprocess.run([*command, *flags, f"-I{RUNTIME}", *given], check=True)
    for loop in loops((tmp_path / "products.s").read_text()):
        read = [line[: line.index(")")].split()[1] for line in loop if "fmadd" in line and "(" in line]
        assert len(set(read)) == len(read), "\n".join(loop)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sums_stay_in_registers(architecture: str, tmp_path: Path) -> None:
    """Blocks of more sums than there are registers would write and read them in every step: in the loops of steps, the
    instructions that multiply write nothing to memory.
    """
    command = toolchain.compiler()
    if "clang" in toolchain.identity(command) or platform.machine() != "x86_64":
        pytest.skip("reads what GCC writes for x86")
    flags = [f"-march={architecture}" if flag == "-march=native" else flag for flag in FLAGS]
    (tmp_path / "products.cc").write_text(source(range(0, len(CASES), some(5, of=1))))
    given = [str(tmp_path / "products.cc"), "-S", "-o", str(tmp_path / "products.s")]
    subprocess.run([*command, *flags, f"-I{RUNTIME}", *given], check=True)
    for loop in loops((tmp_path / "products.s").read_text()):
        stores = [line for line in loop if "mov" in line.split()[0] and line.rstrip().endswith(")")]
        assert not stores, "\n".join(loop)


def loops(text: str) -> list[list[str]]:
    """The innermost loops of an assembly text that multiply: lines from a label to a jump back to it."""
    found: list[list[str]] = []
    lines = [line.strip() for line in text.splitlines()]
    labels: dict[str, int] = {}
    for k, line in enumerate(lines):
        if line.endswith(":"):
            labels[line[:-1]] = k
        elif line.startswith("j") and (start := labels.get(line.split()[-1])) is not None:
            inside = [one for one in lines[start + 1 : k] if one and not one.startswith(".") and not one.endswith(":")]
            if any("fmadd" in one or "mulp" in one for one in inside) and not any(one[0] == "j" for one in inside):
                found.append(inside)
    assert found
    return found
