"""The public functions on a JAX that is not tested: which of them there are is found out when one is first used.

Nothing of JAX's is touched before, since a program may still have to say on which devices JAX is to run.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import MethodType
from typing import Any

import jax
from msgspec import Struct

from jax_stitch.jit.other_jax import canary
from jax_stitch.jit.other_jax.choice import obstacle_of, usual
from jax_stitch.jit.other_jax.plain import absent, plain_jit, refused, warn_once
from jax_stitch.util.options.autotune import autotune_for
from jax_stitch.util.options.jit_arguments import check_function, check_options
from jax_stitch.util.options.launchers import launcher_asked
from jax_stitch.util.options.modes import Mode, mode_for
from jax_stitch.util.options.planner_names import PlannerName, planner_name
from jax_stitch.util.options.strictness import strict_for
from jax_stitch.util.options.verification import verify_for
from jax_stitch.util.user_errors import UserError, api_boundary

_OURS = ("mode", "planner", "templates", "autotune", "strict", "verify")


class _Asked(Struct, frozen=True):
    """The options of ``stitch`` and ``stitch_jit`` that matter here, checked."""

    mode: Mode
    strict: bool


def _checked(options: dict[str, Any]) -> _Asked:
    """Return the options; raises for one that is wrong, as on any JAX."""
    planner = planner_name(options.get("planner", PlannerName.BEAM))
    autotune_for(options.get("autotune"))
    launcher_asked()
    strict = strict_for(options.get("strict"))
    verify_for(options.get("verify"), strict)
    mode = Mode.OFF if planner is PlannerName.NONE else mode_for(options.get("mode"))
    return _Asked(mode, strict)


@api_boundary
def stitch_jit(fun: Any = None, /, **options: Any) -> Any:
    """``jax.jit`` that re-fuses what XLA fused, where the JAX that is here allows it; else plain ``jax.jit``."""
    asked = _checked(options)
    ours = {name: options[name] for name in _OURS if name in options}
    jit_options = {name: value for name, value in options.items() if name not in _OURS}
    check_options(jit_options, _OURS)
    if fun is None:
        return functools.partial(stitch_jit, **options)
    check_function(fun)
    jax.jit(fun, **jit_options)  # What is wrong about its options is said here.

    def make() -> Any:
        off = asked.mode is Mode.OFF
        made, reason = _tried(lambda: usual("stitch_jit")(fun, **options), off)
        if made is not None:
            return made
        if not off and not asked.strict:
            warn_once(reason)
        return plain_jit(fun, reason, asked.mode.value, asked.strict and not off, jit_options, ours)

    return make() if _is_decided() else Later(fun, make, jit_options, ours)


@api_boundary
def stitch(fun: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``fun`` with its operations re-fused into kernels, where the JAX that is here allows it; else ``fun``."""
    asked = _checked(options)
    if asked.mode is Mode.OFF:
        return fun

    def make() -> Any:
        made, reason = _tried(lambda: usual("stitch")(fun, **options))
        if made is not None:
            return made
        if asked.strict:
            return refused(fun, reason)
        warn_once(reason)
        return fun

    return make() if _is_decided() else Later(fun, make, {}, options)


def _after_trial(name: str) -> Callable[..., Any]:
    """Return a public function that needs the canary's verdict, and cannot do with plain ``jax.jit``."""

    @api_boundary
    def called(*args: Any, **kwargs: Any) -> Any:
        made, reason = _tried(lambda: usual(name), obstacle=obstacle_of(name))
        return (made or absent(name, reason))(*args, **kwargs)

    called.__name__ = called.__qualname__ = name
    return called


compare, plan_hlo, stitch_hlo = map(_after_trial, ("compare", "plan_hlo", "stitch_hlo"))


class Later:
    """A function that is made when it is first used; it has the methods of what is made."""

    def __init__(
        self, fun: Callable[..., Any], make: Callable[[], Any], jit_options: dict[str, Any], ours: dict[str, Any]
    ) -> None:
        functools.update_wrapper(self, fun)
        self.jit_options, self.stitch_options = jit_options, ours
        self._make, self._made, self._lock = make, None, threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns."""
        return self._function()(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the method of an object, as Python's functions do."""
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._function(), name)

    def __reduce__(self) -> str:
        return self.__qualname__  # By name, as Python's own functions are.

    def _function(self) -> Any:
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = self._make()
        return self._made


def _is_decided() -> bool:
    """Return whether nothing has to be run to know what there is on this JAX."""
    return bool(obstacle_of("stitch_jit")) or canary.is_decided()


def _tried(make: Callable[[], Any], off: bool = False, obstacle: str | None = None) -> tuple[Any, str]:
    """Return what can be made where the JAX that is here is found to be good, else None and why it is not.

    What is ``off`` stitches nothing, and needs no canary.
    """
    reason = obstacle_of("stitch_jit") if obstacle is None else obstacle
    reason = reason or ("" if off else canary.refusal())
    if reason:
        return None, reason
    try:
        return make(), ""
    except UserError:
        raise
    except Exception as failure:  # Any error may come of a JAX that is not tested; the warning tells which.
        return None, f"a function cannot be made of it as on tested versions: {type(failure).__name__}: {failure}"
