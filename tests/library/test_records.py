"""The library alone: what is written is read by every process of this user, on this device, whatever becomes of it."""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import stat
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TookTooLong
from pathlib import Path

import pytest

from jax_stitch import devices
from jax_stitch.__main__ import main
from jax_stitch.jit import library
from jax_stitch.jit.library import Measured, Station, database, station
from jax_stitch.util import store

ROOT = Path(__file__).resolve().parents[2]
TIMES = {"xla": Measured(2e-3, 0.0, 9), "first": Measured(1e-3, 1.0, 9), "second": Measured(3e-3, 0.1, 9)}


def test_what_is_written_is_read_in_the_order_asked_for(station: Station) -> None:
    assert library.read(station, tuple(TIMES)) is None
    assert library.write(station, TIMES) == TIMES
    found = library.read(station, ("xla", "second", "first"))
    assert found == TIMES and list(found) == ["xla", "second", "first"]


def test_only_what_was_measured_in_the_same_turns_is_compared(station: Station) -> None:
    """Another afternoon's time of the same kernel must not be held against this one's."""
    library.write(station, TIMES)
    assert library.read(station, ("xla", "first")) is None
    assert library.read(station, ("xla", "first", "second", "third")) is None
    assert library.read(station, ("first", "xla", "second")) is None  # ratios to another one
    fewer = {"xla": Measured(5.0, 0.0, 3), "first": Measured(6.0, 0.0, 3)}
    library.write(station, fewer)
    assert library.read(station, tuple(fewer)) == fewer and library.read(station, tuple(TIMES)) == TIMES


def test_who_is_first_is_believed(station: Station) -> None:
    """Two processes that measured at once are to choose alike."""
    library.write(station, TIMES)
    later = {name: Measured(9.0, 0.5, 3) for name in TIMES}
    assert library.write(station, later) == TIMES


@pytest.mark.parametrize("change", ["device", "driver", "compiler", "option"])
def test_another_stations_times_are_not_used(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = devices.get("cpu")
    here = library.station_of(cpu)
    library.write(here, TIMES)
    assert library.read(library.station_of(cpu), tuple(TIMES)) == TIMES
    if change == "device":
        cpu = dataclasses.replace(cpu, multiprocessors=cpu.multiprocessors + 1)
    elif change == "driver":
        monkeypatch.setattr(station, "_driver", lambda device: "NVRM version: another")
    elif change == "compiler":
        monkeypatch.setattr("jax_stitch.backend.compile.toolchain.stamp", lambda: "another compiler")
    else:
        monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    elsewhere = library.station_of(cpu)
    assert elsewhere.key != here.key and library.read(elsewhere, tuple(TIMES)) is None
    library.write(elsewhere, {name: Measured(7.0, 0.0, 3) for name in TIMES})
    monkeypatch.undo()


def test_only_the_owner_may_read(cache: Path, station: Station) -> None:
    previous = os.umask(0)
    try:
        library.write(station, TIMES)
    finally:
        os.umask(previous)
    path = database.path()
    assert [stat.S_IMODE(p.stat().st_mode) for p in (cache, path.parent, path)] == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("who", ["others can write", "a stranger's", "a link"])
def test_what_is_not_private_is_neither_read_nor_written(
    who: str, station: Station, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.write(station, TIMES)
    path = database.path()
    if who == "others can write":
        path.chmod(0o622)
    elif who == "a stranger's":
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    before = path.read_bytes()
    new = {"other": Measured(1.0, 0.0, 3)}
    with pytest.warns(UserWarning, match="(other user|another user|something else).*JAX_STITCH_CACHE_DIR"):
        assert library.read(station, tuple(TIMES)) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        assert library.write(station, new) == new
    assert path.read_bytes() == before


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "text":
        path.write_text("this is no database, but long enough to be looked at as if it were one" * 100)
    elif how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "header":
        path.write_bytes(b"\xff" * 100 + content[100:])
    elif how == "pages":
        path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    else:
        path.unlink()
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE times (other INTEGER)")
            connection.execute("CREATE TABLE stations (other INTEGER)")
        path.chmod(0o600)


@pytest.mark.parametrize("how", ["text", "truncated", "header", "pages", "another making"])
def test_a_damaged_file_is_set_aside_with_one_warning(how: str, station: Station) -> None:
    library.write(station, {f"kernel{n}": Measured(1.0, 0.0, 3) for n in range(500)})
    path = database.path()
    damage(path, how)
    bad = path.read_bytes()
    with pytest.warns(UserWarning, match="was damaged.*set aside as") as caught:
        assert library.write(station, TIMES) == TIMES
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert library.read(station, tuple(TIMES)) == TIMES
    (aside,) = path.parent.glob("*.damaged")
    assert aside.read_bytes() == bad
    kind = next(k for k in store.contents().kinds if k.kind == "library")
    assert kind.damaged == 1


def test_an_empty_file_is_a_new_library(station: Station) -> None:
    """A process that died between making the file and the tables."""
    path = database.path()
    path.parent.mkdir(mode=0o700, parents=True)
    path.touch(0o600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert library.write(station, TIMES) == TIMES and library.read(station, tuple(TIMES)) == TIMES


def test_a_folder_that_cannot_be_made_warns_once(
    tmp_path: Path, station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(UserWarning, match="JAX_STITCH_CACHE_DIR") as caught:
        assert library.write(station, TIMES) == TIMES
        assert library.read(station, tuple(TIMES)) is None
        with library.measuring_alone():
            pass
    assert len(caught) == 1


FORKS = """
import os, sys, warnings
from jax_stitch.jit import library
from jax_stitch.jit.library import Measured, Station

station = Station("k" * 64, "cpu", "driver")
ready, begin = os.pipe()
for me in range(1, 5):
    if os.fork() == 0:
        break
else:
    os.close(begin)  # All are there: they begin at once.
    sys.exit(any([os.wait()[1] for _ in range(4)]))
os.close(begin)
os.read(ready, 1)
"""
"""Four processes at once, of one: to import the package takes longer than what they do."""


def told_by_four(program: str) -> list[str]:
    """The lines that four processes print."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS + program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


WRITER = """
warnings.simplefilter("error")
for n in range(60):
    kernels = [f"shared {n}", f"shared {n} too"]
    mine = {kernel: Measured(float(me), 0.0, me) for kernel in kernels}
    kept = library.write(station, mine)
    assert len({m.rounds for m in kept.values()}) == 1, kept
    assert library.read(station, kernels) == kept
    own = {f"own {me} {n}": Measured(1.0, 0.0, 1)}
    assert library.write(station, own) == own
os.write(1, b"done\\n")
"""


def test_four_processes_share_it(station: Station) -> None:
    """They begin with no library at once, and write the same kernels at once: nothing is lost, nothing is mixed."""
    assert told_by_four(WRITER) == ["done"] * 4
    found = library.summary()
    assert found.times == 60 * (2 + 4) and found.stations == 1
    assert not list(database.path().parent.glob("*.damaged"))


FINDER = """
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for n in range(20):
        mine = {f"{me} {n}": Measured(1.0, 0.0, 1)}
        assert library.write(station, mine) == mine
        assert library.read(station, list(mine)) == mine
os.write(1, f"{sum('set aside' in str(w.message) for w in caught)} {len(caught)}\\n".encode())
"""


def test_four_processes_that_find_it_damaged_set_one_file_aside(station: Station) -> None:
    """None of them may take away the new library that another has begun."""
    library.write(station, TIMES)
    damage(database.path(), "text")
    told = 0
    for line in told_by_four(FINDER):
        aside, all_of_them = map(int, line.split())
        assert aside == all_of_them
        told += aside
    assert told == 1 and len(list(database.path().parent.glob("*.damaged"))) == 1
    assert library.summary().times == 4 * 20


def test_none_is_set_aside_while_it_is_used(station: Station) -> None:
    """SQLite makes and takes away its journal by the library's name, which another library would have then."""
    library.write(station, TIMES)
    with pytest.warns(UserWarning, match="set aside"), ThreadPoolExecutor(1) as one:
        with database.connected() as connection:
            damage(database.path(), "text")
            aside = one.submit(database.set_aside, sqlite3.DatabaseError("damaged"))
            with pytest.raises(TookTooLong):
                aside.result(0.3)
            assert database.path().exists() and not connection.in_transaction
        assert aside.result(60)
    assert not database.path().exists()


def test_one_process_measures_at_a_time(station: Station) -> None:
    waits = "from jax_stitch.jit import library\nprint('started', flush=True)\n"
    waits += "with library.measuring_alone(): print('measuring', flush=True)"
    with library.measuring_alone():
        process = subprocess.Popen(
            [sys.executable, "-c", waits], env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
    assert process.communicate(timeout=60)[0] == "measuring\n"


def test_the_command_counts_and_clears_it(station: Station, capsys: pytest.CaptureFixture[str]) -> None:
    library.write(station, TIMES)
    assert main(["cache", "info"]) == 0
    text = capsys.readouterr().out
    assert "library" in text and "measured times: 3, on 1 device" in text
    assert main(["cache", "clear", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["measured"] == {"times": 3, "stations": 1} and told["cleared"]
    assert not database.path().exists() and library.read(station, tuple(TIMES)) is None
    assert main(["cache"]) == 0
    assert "measured times: 0" in capsys.readouterr().out


def test_it_stays_where_kernels_have_to_go(station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of size must not cost what took longest to find out."""
    library.write(station, TIMES)
    monkeypatch.setenv("JAX_STITCH_CACHE_MAX_SIZE", "0")
    store.write("kernels", "a", b"content")
    assert store.read("kernels", "a") is None and library.read(station, tuple(TIMES)) == TIMES
