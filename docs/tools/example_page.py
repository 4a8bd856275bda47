"""The page of the examples: what each program is about, how it is run, and its text."""

from __future__ import annotations

import ast
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples"


def examples() -> str:
    """The page in Markdown."""
    parts = [
        "# Examples",
        "Short programs in the folder `examples/`. Each prints what it gains on the machine that it runs on, with"
        " `jax.jit` and `stitch_jit` called in turn. The tests run them at small sizes.",
    ]
    for path in sorted(FOLDER.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        about = ast.get_docstring(ast.parse(text)) or path.stem
        words = about.split("\n\n")[0].replace("\n", " ")
        code = text.split('"""\n', 1)[1].strip()
        parts.append(f"## {path.stem.replace('_', ' ')}\n\n{words}\n\n```sh\npython examples/{path.name}\n```")
        parts.append(
            f'??? example "examples/{path.name}"\n\n'
            + "\n".join(f"    {row}".rstrip() for row in ["```python", *code.splitlines(), "```"])
        )
    return "\n\n".join(parts) + "\n"
