"""Files are told by what they hold, and each form is planned and computes the same."""

from __future__ import annotations

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_stitch
from jax_stitch import HloFileError, plan_hlo, stitch_hlo, stitch_jit
from tests.hlo_files.programs import COLUMNS, ROWS, forms, normalised

ARGS = jnp.asarray(np.random.default_rng(0).standard_normal((64, 32)), jnp.float32), jnp.linspace(0.5, 2.0, 32)
FORMS = forms(normalised, *ARGS)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_plans_and_computes_as_the_function(form: str, tmp_path: Path) -> None:
    """Catches a form that is taken for another one, read under a wrong name, or loses a constant or an operand."""
    path = tmp_path / "dump.txt"  # whatever the name says
    content = FORMS[form]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    function = stitch_hlo(path, strict=True)
    expected = jax.tree.leaves(jax.jit(normalised)(*ARGS))
    for found in (function(*ARGS), function.plain(*ARGS)):
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(f, e, rtol=1e-5, atol=1e-5)
    plan, usual = plan_hlo(path), stitch_jit(normalised).plan(*ARGS)
    assert (len(plan.kernels), plan.launches, plan.bytes) == (len(usual.kernels), usual.launches, usual.bytes)
    assert (plan.xla_launches, plan.xla_bytes) == (usual.xla_launches, usual.xla_bytes)


def test_text_bytes_and_paths_are_the_same(tmp_path: Path) -> None:
    """Catches text taken for a path, and bytes for text."""
    (tmp_path / "rows").write_text(ROWS)
    names = [
        plan_hlo(source).kernels[0].name for source in (ROWS, ROWS.encode(), tmp_path / "rows", str(tmp_path / "rows"))
    ]
    assert names == names[:1] * 4


def test_one_of_several_modules_is_chosen_by_name_or_number() -> None:
    """Catches the wrong one, modules split inside comments, and positions counted from the wrong beginning."""
    both = f"// HloModule not_this\n{ROWS}\n/*\nHloModule nor_this\n*/\n{COLUMNS}"
    assert stitch_hlo(both).program.name == "rows"
    assert [stitch_hlo(both, module=m).program.name for m in ("columns", 1, "1", 0)] == [
        "columns",
        "columns",
        "columns",
        "rows",
    ]
    assert "the first of 2 modules (0 rows, 1 columns)" in " ".join(plan_hlo(both).notes)
    assert plan_hlo(both, module="rows").notes == ()
    with pytest.raises(
        HloFileError, match="no module 'row'; choose one of these, by name or number: 0 rows, 1 columns"
    ):
        plan_hlo(both, module="row")
    with pytest.raises(HloFileError, match=r"two modules|several modules named 'rows': choose by number \(0, 1\)"):
        plan_hlo(ROWS + ROWS, module="rows")
    with pytest.raises(HloFileError, match=r"^the text:\d+:"):
        plan_hlo(ROWS + COLUMNS.replace("dimensions={0}", "dimensions={0"), module=1)


def test_the_place_of_an_error_in_a_later_module_is_that_of_the_file() -> None:
    """Catches line numbers that begin anew with each module."""
    wrong = COLUMNS.replace("parameter(0)\n  zero", "parameter(zero)\n  zero")
    line = (ROWS + wrong).split("\n").index("  x = f32[64,32] parameter(zero)") + 1
    with pytest.raises(HloFileError, match=f"^the text:{line}:"):
        plan_hlo(ROWS + wrong, module=1)


def test_modules_in_a_module_of_stablehlo_are_chosen_too() -> None:
    """Catches nested modules taken for one program."""
    one = (
        "module @{} {{ func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n"
        "  %y = stablehlo.{} %x : tensor<4xf32>\n  return %y : tensor<4xf32> }} }}\n"
    )
    both = f"module {{\n{one.format('first', 'negate')}{one.format('second', 'exponential')}}}\n"
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(stitch_hlo(both)(x), -x)
    np.testing.assert_allclose(stitch_hlo(both, module="second")(x), np.exp(x), rtol=1e-6)


def test_modules_of_mlir_are_held_while_their_operations_are_read() -> None:
    """Catches ``f(Module.parse(text))``: operations do not keep their module, so that it is freed before they are read.
    Now and then that ended the process.
    """
    package = Path(jax_stitch.__file__).parent
    for path in package.rglob("*.py"):
        text = path.read_text()
        if "Module" not in text:  # To parse all of the package takes seconds.
            continue
        tree = ast.parse(text)
        held = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.Return)}
        held |= {id(part) for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.Return) for part in _parts(n.value)}
        for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
            if ast.unparse(call.func) == "ir.Module.parse":
                assert id(call) in held, f"{path}:{call.lineno}"


def _parts(value: ast.expr | None) -> list[ast.expr]:
    """Of a tuple or a choice: what is held as well."""
    match value:
        case ast.Tuple():
            return value.elts
        case ast.IfExp():
            return [value.body, value.orelse]
    return []
