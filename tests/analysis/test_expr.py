"""Index expressions: simplification keeps the value, and puts reshapes back together."""

import copy
import gc
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jax_stitch.ir.indices import Expr, delinearize, linearize, var
from jax_stitch.ir.indices.expr import Var
from jax_stitch.util import interned
from tests.some import some

ROW, J = var("row", 1024), var("j", 1000)


def test_reshape_there_and_back_is_the_identity():
    p = ROW * 1000 + J
    assert linearize(delinearize(p, (8, 128, 1000)), (8, 128, 1000)) == p
    assert delinearize(p, (1024, 1000)) == (ROW, J)
    assert linearize(delinearize(ROW, (8, 128)), (8, 128)) == ROW
    eight, rest = delinearize(ROW, (8, 128))
    assert delinearize(linearize((eight, rest), (8, 128)), (16, 64)) == delinearize(ROW, (16, 64))


def test_dimension_of_size_one_has_index_zero():
    assert [str(i) for i in delinearize(J, (1, 1000, 1))] == ["0", "j", "0"]


def test_stride_is_none_where_not_affine():
    (variable,) = J.variables()
    assert (ROW * 1000 + J * 3).stride_of(variable) == 3
    assert (J % 7).stride_of(variable) is None


OPERATIONS = st.lists(st.tuples(st.sampled_from("dm*+"), st.sampled_from([1, 2, 3, 4, 6, 12])), min_size=1, max_size=5)


@settings(max_examples=some(150, of=400), deadline=None)
@given(
    st.sampled_from([2, 3, 8, 12]),
    st.sampled_from([4, 5, 6]),
    st.sampled_from([1, 2, 4, 6, 12, -1]),
    st.sampled_from([0, 1, 3, 5]),
    st.integers(-7, 7),
    OPERATIONS,
)
def test_simplification_keeps_the_value_and_the_range(a_size, b_size, a_step, b_step, offset, operations):
    a, b = var("a", a_size), var("b", b_size)
    base: Expr = a * a_step + b * b_step + offset
    built = base
    for kind, c in operations:
        built = {"d": built // c, "m": built % c, "*": built * c, "+": built + base * c}[kind]
    for x in range(a_size):
        for y in range(b_size):
            start = x * a_step + y * b_step + offset
            value = start
            for kind, c in operations:
                value = {"d": value // c, "m": value % c, "*": value * c, "+": value + start * c}[kind]
            assert built.evaluate({"a": x, "b": y}) == value
            assert built.low <= value <= built.high


def test_equal_expressions_are_one_object():
    made = (ROW * 1000 + J) // 8 % 16
    assert (J + ROW * 1000) // 8 % 16 is made
    assert pickle.loads(pickle.dumps(made)) is made and copy.deepcopy(made) is made
    with pytest.raises(AttributeError):
        made.offset = 1


def test_threads_make_one_object_for_equal_expressions():
    """Two that plan at once must agree on which elements are the same."""
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda k: var(f"v{k % 50}", 77) * 3 + k % 50, range(4000)))
    assert len(set(map(id, made))) == 50


@pytest.mark.usefixtures("only_new_objects")
def test_what_nobody_refers_to_is_dropped():
    before = len(interned._made)
    kept = [Var(f"dropped {k}", 0, 3) for k in range(100)]
    assert len(interned._made) == before + 100
    del kept
    gc.collect()
    assert len(interned._made) <= before
