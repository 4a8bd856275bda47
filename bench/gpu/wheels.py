"""Packages that a session needs: what is missing is taken from wheels beside the checkout, else from a network.

``python bench/gpu/wheels.py --prepare`` fetches these wheels where there is a network. Those of packages that are
installed on the other machine are not used there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

NEEDED = ("jax", "jaxlib", "numpy", "ml_dtypes", "msgspec", "networkx", "scipy", "rich")
"""Without them nothing runs. JAX comes with its CUDA plugin, which no wheel of ours replaces."""
WANTED = ("flax", "optax", "matplotlib", "cupy", "torch")
"""Without them some workloads, plots and peers are left out."""
PREPARED = (
    *("networkx", "rich", "markdown-it-py", "mdurl", "pygments"),
    *("platformdirs", "optax", "absl-py", "pytest", "pluggy", "iniconfig", "packaging"),
)
"""What ``--prepare`` fetches: pure Python, the same for every machine. The rest comes with JAX."""
BUILT = ("msgspec",)
"""What it fetches besides, for each of ``PYTHONS`` and for machines like this one: JAX does not come with it."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FETCH_SECONDS = 40.0


def distribution(wheel: Path) -> str:
    """The name of the package in a wheel, as pip compares names."""
    return re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()


def fits(wheel: Path) -> bool:
    """Whether a wheel is for any Python or this one, and for any machine or one like this."""
    *_, python, abi, system = wheel.stem.split("-")
    ours = {"py3", f"cp{sys.version_info.major}{sys.version_info.minor}"}
    read = abi == "abi3" or not ours.isdisjoint(python.split("."))
    return read and (system == "any" or system.endswith(platform.machine()))


def lacking(names: Sequence[str], site: Path | None = None) -> list[str]:
    """Those of these modules that cannot be found; ``site`` is a folder that they may be in."""
    importlib.invalidate_caches()
    if site is not None and str(site) not in sys.path:
        sys.path.insert(0, str(site))
    return [name for name in names if importlib.util.find_spec(name) is None]


def installed(name: str) -> bool:
    """Whether a package is there, whatever its modules are called."""
    from importlib import metadata

    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def useful(folder: Path) -> list[Path]:
    """The wheels of a folder that this Python reads, whose packages are not installed; the last by name, where a
    package has several.
    """
    fitting = (wheel for wheel in sorted(folder.glob("*.whl")) if fits(wheel))
    found: Mapping[str, Path] = {distribution(wheel): wheel for wheel in fitting}
    return [wheel for name, wheel in found.items() if not installed(name)]


def provide(folder: Path, site: Path) -> list[str]:
    """Puts what is missing into ``site``, and returns which needed modules are missing even so."""
    wheels = useful(folder)
    if wheels:
        _pip("install", "--no-index", "--no-deps", "--no-compile", "--target", str(site), *map(str, wheels))
    missing = lacking(NEEDED, site)
    fetched = [name for name in missing if name not in ("jax", "jaxlib")]
    if fetched:  # With a network; without one it fails at once.
        _pip("install", "--retries", "0", "--timeout", "5", "--no-deps", "--target", str(site), *fetched)
        missing = lacking(NEEDED, site)
    return missing


def prepare(folder: Path, more: Sequence[str]) -> int:
    """Fetches the wheels into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [*PREPARED, *more]
    download = ("download", "--no-deps", "--only-binary=:all:", "-d", str(folder))
    status = _pip(*download, *names, seconds=600)
    for python in PYTHONS:
        of_machine = ("--implementation", "cp", "--platform", f"manylinux2014_{platform.machine()}")
        status |= _pip(*download, "--python-version", python, *of_machine, *BUILT, seconds=600)
    size = sum(wheel.stat().st_size for wheel in folder.glob("*.whl"))
    print(f"{len(list(folder.glob('*.whl')))} wheels, {size / 1e6:.1f} MB, in {folder}; carry it with the checkout")
    return status


def _pip(*arguments: str, seconds: float = FETCH_SECONDS) -> int:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", arguments[0], "--quiet", *arguments[1:]]
    try:
        return subprocess.run(command, check=False, timeout=seconds).returncode
    except subprocess.TimeoutExpired:
        print(f"pip {arguments[0]} was ended after {seconds:.0f} s", file=sys.stderr)
        return 1


def main(argv: Sequence[str] | None = None) -> int:
    """Without ``--prepare``: puts what is missing into ``--site``; the exit status is 1 where something needed is."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--prepare", action="store_true", help="fetch wheels into the folder")
    parser.add_argument("--folder", type=Path, default=Path(".whl"), help="of wheels (default: %(default)s)")
    parser.add_argument("--site", type=Path, default=Path(".whl/site"), help="where they are put")
    parser.add_argument("more", nargs="*", metavar="PACKAGE", help="further packages to fetch")
    options = parser.parse_args(argv)
    if options.prepare:
        return prepare(options.folder, options.more)
    missing = provide(options.folder, options.site)
    if missing:
        print(
            f"missing: {', '.join(missing)}. Run `bench/gpu.sh --prepare {' '.join(missing)}` where there "
            f"is a network, and carry the folder {options.folder} with the checkout",
            file=sys.stderr,
        )
        return 1
    if left := lacking(WANTED, options.site):
        print(f"not here, and not needed: {', '.join(left)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
