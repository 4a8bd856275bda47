"""The table of names is all that the package uses of JAX without JAX's promise, and true of the JAX that is here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from jax_stitch.util import jax_names
from jax_stitch.util.jax_names.table import NAMES
from jax_stitch.util.jax_names.versions import TESTED, Versions, require_supported

PACKAGE = Path(jax_names.__file__).parents[1]
PRIVATE = ("jax._src", "jax.interpreters", "jax.extend", "jaxlib")
MODULES = {entry.name for entry in NAMES if not entry.attribute} | {"config_ext", "mlir.ir"}


@cache
def trees() -> dict[Path, ast.Module]:
    files = (p for p in PACKAGE.rglob("*.py") if p.parent.name != "jax_names")
    return {path: ast.parse(path.read_text()) for path in files}


def imported(tree: ast.Module) -> Iterator[str]:
    """The full names that a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_other_file_imports_a_private_name() -> None:
    """A private name that is imported elsewhere is missing in no test, and raises out of a user's call."""
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path, tree in trees().items()
        for name in imported(tree)
        if name != "jaxlib" and any(name == home or name.startswith(f"{home}.") for home in PRIVATE)
    }
    assert not found


def test_all_that_is_used_of_a_module_is_in_the_table() -> None:
    """An attribute of ``mlir`` or ``ir`` that the table lacks is looked up nowhere before it is used."""
    known, missing = {entry.name for entry in NAMES}, set()
    for path, tree in trees().items():
        modules = {name.rpartition(".")[2] for name in imported(tree) if name.startswith("jax_stitch.util.jax_names.")}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules | {"mlir.ir"}:
                of, name = ast.unparse(node.value), ast.unparse(node).replace("mlir.ir.", "ir.")
                if of in MODULES and name not in known:
                    missing.add(f"{path.relative_to(PACKAGE)}: {name}")
    assert not missing


def test_this_jax_has_all_names() -> None:
    """A form that is wrong about a version which works would turn the package off there."""
    report = jax_names.report()
    assert report["faulty_names"] == [] and report["tested"]
    assert not jax_names.obstacle()


def test_every_name_of_the_table_can_be_imported() -> None:
    """A name that ``jax_names`` shows and the table has not, or the other way round."""
    attributes = {entry.name for entry in NAMES if "." in entry.name} | {"jit", "Lowered", "MeshComputation"}
    own = {"EVERYTHING", "HLO_FILES", "Fault", "MissingName", "Versions"}
    own |= {"faults", "here", "obstacle", "report", "require_supported"}
    assert {entry.name for entry in NAMES} - attributes == set(jax_names.__all__) - own
    for entry in NAMES:
        assert entry.what and entry.lost
        if entry.name not in attributes:
            assert getattr(jax_names, entry.name) is not None


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("version", "tested"),
    [
        *((version, True) for version in TESTED),
        ("0.10.0", True),
        ("0.10.3", False),
        ("0.12.0.2", False),
        ("0.12.1", False),
        ("0.13.0", False),
        ("1.0", False),
        ("0.12.0.dev20260101", False),
        ("0.12.0.1+cuda", False),
        ("unknown", False),
    ],
)
def test_which_versions_are_tested(version: str, tested: bool) -> None:
    """A newer patch that counts as tested is never tried; an older one that does not is tried in vain."""
    assert Versions(version, TESTED[-1]).tested is tested
    assert Versions(TESTED[-1], version).tested is tested


@pytest.mark.every_case
@pytest.mark.parametrize(("version", "old"), [("0.9.2", True), ("0.4.38", True), ("0.10.0", False), ("1.0", False)])
def test_which_versions_are_too_old(version: str, old: bool) -> None:
    """Compared as text, 0.9 comes after 0.10."""
    if not old:
        return require_supported(Versions(version, version))
    with pytest.raises(ImportError, match=rf"jax {version} is installed: pip install --upgrade"):
        require_supported(Versions(version, version))
