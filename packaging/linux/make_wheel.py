"""``make wheel``: the package as a wheel for Linux, with the handler of kernels on the CPU already compiled.

The wheel that setuptools makes, for any system, gets one more file, and the tag of the systems that this file can be
loaded on: what it asks of the C and C++ libraries decides which. To serve older systems, run it on an older one, as
those of the manylinux images. Elsewhere the handler is compiled at its first use, as from a clone. With ``--in-place``
only the handler is made, and lies in the clone as it does in the wheel: ``make`` does that for its environment.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "hlo_parser", "jax_stitch")
"""What a wheel is made of."""
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.compiled")
POLICIES: tuple[Mapping[str, tuple[int, ...]], ...] = (
    {"GLIBC": (2, 17), "GLIBCXX": (3, 4, 19), "CXXABI": (1, 3, 7), "GCC": (4, 8)},
    {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0)},
    {"GLIBC": (2, 31), "GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12), "GCC": (9, 0)},
    {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (11, 0)},
    {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0)},
    {"GLIBC": (2, 39), "GLIBCXX": (3, 4, 32), "CXXABI": (1, 3, 14), "GCC": (13, 0)},
)
"""The manylinux policies (PEP 600), oldest first: the newest symbols of each library that a file may ask for."""
LIBRARIES = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "libstdc++.so", "libgcc_s.so", "ld-linux")
"""What every system of a policy has."""


def system_tag(library: Path, machine: str) -> str:
    """The oldest systems that a shared object can be loaded on, as a wheel's tag; the plain one where it cannot be
    told, or it needs a library that they do not all have."""
    plain = f"linux_{machine}"
    if shutil.which("objdump") is None:
        return plain
    run = subprocess.run(["objdump", "-p", "-T", str(library)], capture_output=True, text=True, check=True)
    needed = re.findall(r"^\s*NEEDED\s+(\S+)", run.stdout, re.M)
    if not all(name.startswith(LIBRARIES) for name in needed):
        return plain
    asked = re.findall(r"\b(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)\b", run.stdout)
    return tag_of(((kind, tuple(map(int, version.split(".")))) for kind, version in asked), machine)


def tag_of(asked: Iterable[tuple[str, tuple[int, ...]]], machine: str) -> str:
    """The tag of the first policy that has all these versions of symbols."""
    wanted = list(asked)
    for policy in POLICIES:
        if all(version <= policy[kind] for kind, version in wanted):
            return "manylinux_{}_{}_{}".format(*policy["GLIBC"], machine)
    return f"linux_{machine}"


def plain_wheel(folder: Path, isolated: bool) -> Path:
    """The wheel for any system, made from a copy: what an earlier build left in the clone does not get into it."""
    copy = folder / "source"
    copy.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=LEFT_OUT)
        else:
            shutil.copy2(ROOT / name, copy / name)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", str(copy)]
    command += ["--wheel-dir", str(folder)] + ([] if isolated else ["--no-build-isolation"])
    if subprocess.run(command, cwd=folder).returncode != 0:
        hint = "" if isolated else ", with setuptools 77 or newer in this environment"
        raise SystemExit(f"pip could not make the wheel (see above). Try again{hint}.")
    (made,) = folder.glob("*-none-any.whl")
    return made


def compiled_handler(folder: Path) -> Path:
    """The handler for every processor of this machine's kind."""
    from jax_stitch.backend.compile import toolchain
    from jax_stitch.backend.compile.host import LIBRARY_FLAGS
    from jax_stitch.backend.launch import shipped
    from jax_stitch.util.user_errors import UserError

    if "-march" in os.environ.get("CXX", "") or "-mcpu" in os.environ.get("CXX", ""):
        raise SystemExit("$CXX names a processor, and the wheel is for all of them. Take it out of $CXX.")
    options = (*LIBRARY_FLAGS, "-s", *(f"-I{include}" for include in shipped.include_folders()))
    path = folder / shipped.name()
    try:
        path.write_bytes(toolchain.shared_object("handler", shipped.SOURCE.read_text(encoding="utf-8"), options))
    except UserError as error:  # no compiler, or one that cannot work
        raise SystemExit(f"The handler could not be compiled. {error}") from None
    return path


def with_handler(wheel: Path, handler: Path, tag: str, out: Path) -> Path:
    """A wheel with one more file, for the systems of a tag."""
    made = out / wheel.name.replace("-none-any.whl", f"-none-{tag}.whl")
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as old:
        files = {info.filename: old.read(info) for info in old.infolist() if not info.is_dir()}
    (record,) = (name for name in files if name.endswith(".dist-info/RECORD"))
    about = record.replace("RECORD", "WHEEL")
    text = files[about].decode().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
    files[about] = re.sub(r"^Tag: (\S+)-none-any$", rf"Tag: \1-none-{tag}", text, flags=re.M).encode()
    files[f"jax_stitch/backend/launch/{handler.name}"] = handler.read_bytes()
    del files[record]
    files[record] = _record(files, record)
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the same file from the same sources
            entry.external_attr = 0o644 << 16
            new.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return made


def _record(files: Mapping[str, bytes], own: str) -> bytes:
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{own},,\n"]).encode()


def main(argv: Sequence[str] | None = None) -> int:
    """Makes the wheel and prints its path."""
    parser = argparse.ArgumentParser(description="the package as a wheel for Linux, with its handler compiled")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="FOLDER", help="default: dist")
    parser.add_argument("--no-build-isolation", action="store_true", help="with this environment's setuptools: offline")
    parser.add_argument("--in-place", action="store_true", help="no wheel: put the compiled handler into this clone")
    options = parser.parse_args(argv)
    if sys.platform != "linux":
        raise SystemExit("This makes wheels for Linux. Elsewhere: pip wheel --no-deps .")
    sys.path.insert(0, str(ROOT))  # the handler of this clone, whatever else is installed
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        handler = compiled_handler(folder)
        if options.in_place:
            print(shutil.copyfile(handler, ROOT / "jax_stitch" / "backend" / "launch" / handler.name))
            return 0
        tag = system_tag(handler, platform.machine())
        wheel = plain_wheel(folder, isolated=not options.no_build_isolation)
        print(with_handler(wheel, handler, tag, options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
