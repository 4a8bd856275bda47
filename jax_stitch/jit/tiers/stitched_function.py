"""What type checkers and editors know of a function under ``stitch_jit``, and of the options that it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypedDict, TypeVar, overload

import jax

from jax_stitch.jit.tiers.status import Status

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan import Plan

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

ModeName = Literal["auto", "now", "async", "off"]
"""The values of ``mode=``: when a function is stitched."""

PlannerChoice = Literal["beam", "ilp", "span", "none"]
"""The values of ``planner=``: how it is chosen what is stitched."""

AutotuneChoice = bool | Literal["top3"]
"""The values of ``autotune=``: what is measured before it is stitched."""


class JitOptions(TypedDict, total=False):
    """The options of ``jax.jit``, which ``stitch_jit`` takes as well."""

    in_shardings: Any
    out_shardings: Any
    static_argnums: int | Sequence[int] | None
    static_argnames: str | Iterable[str] | None
    donate_argnums: int | Sequence[int] | None
    donate_argnames: str | Iterable[str] | None
    keep_unused: bool
    device: jax.Device | None
    backend: str | None
    inline: bool
    compiler_options: dict[str, Any] | None


class StitchedFunction(Protocol[P, R_co]):
    """A function under ``stitch_jit``: it is called like the function that it was made of, and has more methods.

    ``lower``, ``trace``, ``eval_shape`` and ``clear_cache`` are those of a function under ``jax.jit``. It is a type for
    annotations; the value is of the type that ``jax.jit`` gives.
    """

    __name__: str

    @property
    def __wrapped__(self) -> Callable[P, R_co]:
        """Return the function that it was made of."""
        ...

    @property
    def jit_options(self) -> Mapping[str, Any]:
        """Return its options of ``jax.jit``."""
        ...

    @property
    def stitch_options(self) -> Mapping[str, Any]:
        """Return its other options."""
        ...

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Return the function's results."""
        ...

    @overload
    def __get__(self, instance: None, owner: type, /) -> StitchedFunction[P, R_co]: ...

    @overload
    def __get__(
        self: StitchedFunction[Concatenate[S, Q], R], instance: S, owner: type | None = None, /
    ) -> Callable[Q, R]: ...

    def plan(
        self,
        *args: Any,
        device: str | None = None,
        planner: PlannerChoice | None = None,
        templates: str | None = None,
        autotune: AutotuneChoice | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Plan:
        """Return the fusion plan for these arguments (arrays or ``jax.ShapeDtypeStruct``) on a device that need not be
        there.

        ``device`` is a name of ``python -m jax_stitch devices``; by default the one in use.
        """
        ...

    def status(self) -> Status:
        """Return what calls run now, what is being made, what that brought and what it cost."""
        ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing more goes on in the background; return whether that is so."""
        ...

    def retry(self) -> None:
        """Forget the verdicts and plans that are kept of calls like those made so far, also on disk.

        The next calls plan and measure anew. A program that JAX has compiled with the function inside stays as it is
        until its own cache is cleared.
        """
        ...

    def lower(self, *args: Any, **kwargs: Any) -> jax.stages.Lowered:
        """Return the function lowered for these arguments, as ``jax.jit(f).lower`` gives it."""
        ...

    def trace(self, *args: Any, **kwargs: Any) -> jax.stages.Traced:
        """Return the function traced for these arguments, as ``jax.jit(f).trace`` gives it."""
        ...

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the types of the results."""
        ...

    def clear_cache(self) -> None:
        """Forget every trace and every compiled program of the function."""
        ...
