"""The library without numpy and ml_dtypes: the same, but that constants stay text."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import hlo_parser
from tests.hlo_parser.judge import judge
from tests.hlo_parser.tables import HERE, corners, loose, refused

CHILD = """
import json, sys
sys.modules["numpy"] = sys.modules["ml_dtypes"] = None
import hlo_parser
printed, kept, wrong, taken = {}, {}, [], []
texts, others = json.load(sys.stdin)
for name, text in texts.items():
    module = hlo_parser.parse(text)
    printed[name] = str(module)
    again = hlo_parser.parse(printed[name])
    if again != module or hash(again) != hash(module) or hlo_parser.diff(module, again):
        wrong.append(name)
    kept[name] = [str(fault) for fault in hlo_parser.verify(module)]
for name, text in others.items():
    try:
        hlo_parser.parse(text)
        taken.append(name)
    except hlo_parser.HloParseError:
        pass
literal = hlo_parser.parse("ENTRY e { ROOT x = f32[2] constant({1, 2}) }").entry.root.literal
try:
    literal.to_numpy()
except ValueError as error:
    message = str(error)
json.dump([printed, kept, wrong, taken, message], sys.stdout)
"""


def test_without_numpy() -> None:
    texts = corners() | loose()
    child = [sys.executable, "-c", CHILD]
    given = json.dumps([texts, refused()])
    root = HERE.parent.parent
    done = subprocess.run(child, input=given, capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr
    printed, faults, wrong, taken, message = json.loads(done.stdout)
    assert wrong == []
    assert message == "arrays need numpy and a recent ml_dtypes; this constant of shape f32[2] is text"
    for name, text in texts.items():
        assert faults[name] == [str(fault) for fault in hlo_parser.verify(hlo_parser.parse(text))], name
    # What is not looked at is whether values fit their type.
    assert all("constant" in refused()[name] for name in taken) and len(taken) < 15, taken
    names = [name for name in texts if "{...}" not in texts[name]]
    verdicts = judge("parse", [*(texts[n] for n in names), *(printed[n] for n in names)])
    for name, original, again in zip(names, verdicts[: len(names)], verdicts[len(names) :], strict=True):
        assert again.answer == original.answer, name


def test_the_package_of_its_own() -> None:
    """It has no dependency, and none of the library's folders is left out of it."""
    root = HERE.parent.parent
    project = tomllib.loads((root / "packaging" / "hlo_parser" / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dependencies"] == []
    folders = {path.parent.relative_to(root) for path in (root / "hlo_parser").rglob("__init__.py")}
    settings = project["tool"]["setuptools"]
    assert {".".join(folder.parts) for folder in folders} == set(settings["packages"])
    whole = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["package-data"]["hlo_parser"] == whole["tool"]["setuptools"]["package-data"]["hlo_parser"]
