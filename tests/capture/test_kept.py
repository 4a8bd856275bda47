"""XLA's programs for described GPUs are compiled once; whatever they depend on has them compiled again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_stitch import devices
from jax_stitch.frontend.capture import kept
from jax_stitch.frontend.capture.errors import CaptureError
from jax_stitch.frontend.capture.function import capture
from jax_stitch.util import store


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bytes]:
    """The programs that the compiler was asked for, which answers with the number of the question."""
    programs: list[bytes] = []

    def compiled(program: bytes, target_config: str, options: Mapping[str, Any]) -> str:
        programs.append(program)
        if program == b"wrong":
            raise CaptureError("no")
        return f"HloModule m{len(programs)} é"

    monkeypatch.setenv("JAX_STITCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kept, "compile_described", compiled)
    return programs


def test_the_same_is_compiled_once(asked: list[bytes]) -> None:
    first = kept.described_text(b"p", "gpu", {"a": 1, "b": True})
    assert kept.described_text(b"p", "gpu", {"b": True, "a": 1}) == first == "HloModule m1 é"
    assert len(asked) == 1


def test_what_it_depends_on_has_it_compiled_again(asked: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a stale text otherwise: another program, GPU, option, XLA or flags in the environment."""
    texts = {kept.described_text(b"p", "gpu", {}), kept.described_text(b"q", "gpu", {})}
    texts |= {kept.described_text(b"p", "other", {}), kept.described_text(b"p", "gpu", {"a": 1})}
    with monkeypatch.context() as patched:
        patched.setattr(kept, "xla_versions", lambda: ("another",))
        texts.add(kept.described_text(b"p", "gpu", {}))
    with monkeypatch.context() as patched:
        patched.setenv("XLA_FLAGS", "--xla_another")
        texts.add(kept.described_text(b"p", "gpu", {}))
    assert len(texts) == 6


def test_errors_and_damaged_texts_are_not_kept(asked: list[bytes], tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(CaptureError):
            kept.described_text(b"wrong", "gpu", {})
    kept.described_text(b"p", "gpu", {})
    (file,) = (tmp_path / kept.KIND).iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    assert kept.described_text(b"p", "gpu", {}) == "HloModule m4 é"


def test_a_program_is_the_same_in_each_trace(asked: list[bytes]) -> None:
    """Its bytes may hold nothing that differs from trace to trace, or nothing would ever be found again."""
    device, x = devices.get("h200"), jax.ShapeDtypeStruct((4, 8), jnp.float32)

    def double(a: Any) -> Any:
        return a * 2

    texts = {capture(double, (x,), device).text for _ in range(2) for _ in [jax.clear_caches()]}
    assert len(texts) == len(asked) == 1 and store.contents().bytes > 0
