"""Runs notebooks and stores their outputs: ``python -m docs.tools.notebooks notebooks/fusion_plans.ipynb``.

A cell's outputs are what it prints, the value of its last line, and the figures that it draws. No Jupyter is needed, so
that the tests can run the notebooks by the same code and compare what they print with what is stored.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

MEASURED = "measured"
"""The tag of cells whose outputs differ from run to run."""


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells with code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def is_measured(cell: dict[str, Any]) -> bool:
    """Whether a cell's outputs differ from run to run."""
    return MEASURED in cell["metadata"].get("tags", ())


def printed(outputs: Sequence[dict[str, Any]]) -> str:
    """What a cell printed."""
    return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def runs(notebook: dict[str, Any], name: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Runs the cells in the working folder, where their text is written too; yields each with its outputs."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    text = ""
    for cell in code_cells(notebook):
        source = "".join(cell["source"])
        start = text.count("\n")
        text += source + "\n\n"
        Path(f"{name}.py").write_text(text, encoding="utf-8")
        yield cell, _run(f"{name}.py", "\n" * start + source, namespace)


def _run(name: str, source: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs of one cell."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out, value = io.StringIO(), None
    with contextlib.redirect_stdout(out):
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            # As in notebooks: a semicolon at the end says that the value is not to be shown.
            hidden = source.rstrip().endswith(";")
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
            value = None if hidden else value
    outputs: list[dict[str, Any]] = []
    if out.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": out.getvalue().splitlines(keepends=True)})
    if value is not None:
        outputs.append({"output_type": "execute_result", "metadata": {}, "data": _shown(value)})
    return outputs + _figures()


def _shown(value: Any) -> dict[str, Any]:
    """A value as notebooks show it."""
    data: dict[str, Any] = {"text/plain": repr(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(keepends=True)
    return data


def _figures() -> list[dict[str, Any]]:
    """The figures that are open, as pictures; they are closed."""
    outputs: list[dict[str, Any]] = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        words = figure.get_suptitle() or next((a.get_title() for a in figure.axes if a.get_title()), "figure")
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=90, bbox_inches="tight", metadata={"Software": None})
        data = {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": [words]}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    plt.close("all")
    return outputs


def store(path: Path, measured: bool = False) -> None:
    """Runs a notebook and writes its outputs into it; of cells that measure only where ``measured`` says so, or there
    is none yet: a busy machine would leave its figures there.
    """
    notebook = json.loads(path.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for count, (cell, outputs) in enumerate(runs(notebook, path.stem), 1):
            if is_measured(cell) and cell["outputs"] and not measured:
                outputs = cell["outputs"]
            for output in outputs:
                if output["output_type"] == "execute_result":
                    output["execution_count"] = count
            cell["outputs"], cell["execution_count"] = outputs, count
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs notebooks and stores their outputs."""
    parser = argparse.ArgumentParser(prog="python -m docs.tools.notebooks", description="run notebooks, store outputs")
    parser.add_argument("notebooks", nargs="+", type=Path)
    parser.add_argument("--measured", action="store_true", help="also outputs that differ from run to run")
    options = parser.parse_args(argv)
    for path in options.notebooks:
        store(path.resolve(), options.measured)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
