"""What XLA made of programs for GPUs that are only described, kept on disk: to compile one again takes seconds.

The same program, description, options and versions give the same text, whoever asks.
"""

from __future__ import annotations

import functools
import hashlib
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from jax_stitch.frontend.capture.client import Option, compile_described
from jax_stitch.util import store
from jax_stitch.util.xla_versions import xla_versions

KIND = "captures"
_ENVIRONMENT = ("XLA_FLAGS", "NVIDIA_TF32_OVERRIDE")


def described_text(program: bytes, target_config: str | None, options: Mapping[str, Option]) -> str:
    """Return what ``compile_described`` does, which is asked only for what is not there yet. Errors are not kept."""
    name = store.key(
        program=hashlib.sha256(program).hexdigest(),
        target_config=target_config,
        options=sorted((option, str(value)) for option, value in options.items()),
        versions=xla_versions(),
        environment={variable: os.environ.get(variable) for variable in _ENVIRONMENT},
        source=_source(),
    )
    kept = store.read(KIND, name)
    if kept is not None:
        return zlib.decompress(kept).decode()
    text = compile_described(program, target_config, options)
    store.write(KIND, name, zlib.compress(text.encode(), 1))
    return text


@functools.cache
def _source() -> str:
    """Return a hash of the files that compile and print: in a checkout they change without a new version."""
    digest = hashlib.sha256()
    for name in ("worker.py", "hlo_text.py"):
        digest.update(Path(__file__).with_name(name).read_bytes())
    return digest.hexdigest()
