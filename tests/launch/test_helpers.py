"""The heavy sweeps of a CPU's loop divided among threads: see ``backend/runtime/helpers.h``."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from bench.small.nets import RECURRENT
from jax_stitch import devices
from jax_stitch.backend.compile import compile_all, toolchain
from jax_stitch.backend.compile.headers import RUNTIME
from jax_stitch.emit.source import KernelSource
from jax_stitch.frontend.capture.function import capture
from jax_stitch.loops.teams import helped, team_choice
from jax_stitch.pipeline import stitch_capture
from jax_stitch.util.values import replace

HERE = Path(__file__).resolve().parent
PROGRAMS = {program.name: program for program in RECURRENT}


@pytest.mark.parametrize("pieces", [2, 3])
def test_whoever_comes_the_result_is_that_of_one_thread(pieces: int, tmp_path: Path) -> None:
    """Catches: a leader that waits for a thread which has not come, or does a piece twice; a helper that reads what is
    not there yet, or is at another sweep than the leader; one that comes after the end, or that no piece is left for.
    """
    program = tmp_path / "helpers"
    found = [f"-I{RUNTIME}", f"-DPIECES={pieces}"]
    command = [
        *toolchain.compiler(),
        "-std=c++17",
        "-O1",
        "-pthread",
        "-fopenmp-simd",
        *found,
        str(HERE / "helpers.cc"),
    ]
    subprocess.run([*command, "-o", str(program)], check=True, capture_output=True, text=True, timeout=120)
    said = subprocess.run([program, "1"], check=True, capture_output=True, text=True, timeout=60).stdout.split()
    calls, wrong, _helped = map(int, said)
    assert calls > 10 and wrong == 0


def sources(name: str) -> dict[str, KernelSource]:
    """The kernels of a recurrent net, by their names."""
    function, arguments = PROGRAMS[name].make()
    two_cores = replace(devices.get("cpu"), multiprocessors=2)
    captured = capture(function, arguments, two_cores)
    return {kernel.source.name: kernel.source for kernel in stitch_capture(captured, two_cores).kernels}


def called(source: KernelSource) -> tuple[Callable[[Sequence[range], bool], list[bytes]], int]:
    """A function that runs blocks of a kernel, each of some ranges of them in a thread; and how many blocks it has."""
    (kernel,) = compile_all([source], "host")
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel.address)
    drawn = np.random.default_rng(0)
    inputs = [drawn.normal(size=t.dims).astype(np.float32) for t in source.inputs]

    def launch(ranges: Sequence[range], meets: bool) -> list[bytes]:
        outputs = [np.zeros(t.dims, np.float32) for t in (*source.outputs, *source.scratch)]
        area = np.zeros(1024, np.uint8)
        start = -area.ctypes.data % 64
        pointers = [a.ctypes.data for a in (*inputs, *outputs)]
        buffers = (ctypes.c_void_p * (len(pointers) + 1))(*pointers, area.ctypes.data + start if meets else None)
        arguments = [(ctypes.addressof(buffers), each.start, each.stop) for each in ranges]
        threads = [Thread(target=run, args=each) for each in arguments[1:]]
        for thread in threads:
            thread.start()
        run(*arguments[0])
        for thread in threads:
            thread.join(60)
        return [output.tobytes() for output in outputs]

    return launch, sum(source.host_phases)


@pytest.mark.usefixtures("zen4")
@pytest.mark.parametrize("name", ["lstm_128_batch_1", "gru_128_batch_1_gradient"])
def test_a_net_gives_the_same_bits_however_it_is_called(name: str, monkeypatch: Any) -> None:
    """Catches: a sweep whose pieces are not by themselves; sums in another order where they are divided."""
    monkeypatch.setattr(team_choice, "HELP_GAIN", 0.0)
    monkeypatch.setattr(helped, "WORTH_MEETING", 0.01)
    with_helpers = [source for source in sources(name).values() if source.helpers]
    monkeypatch.setattr(team_choice, "may_have_helpers", lambda loop, device: False)
    alone = sources(name)
    assert with_helpers
    assert not any(source.helpers for source in alone.values())
    for source in with_helpers:
        assert "_DIVIDED(" in source.text
        expected = called(alone[source.name])[0]([range(0, 1)], False)
        launch, blocks = called(source)
        assert blocks == 2
        assert launch([range(0, 2)], False) == expected
        assert launch([range(0, 2)], True) == expected
        for _ in range(100):
            assert launch([range(0, 1), range(1, 2)], True) == expected
            assert launch([range(1, 2), range(0, 1)], True) == expected
