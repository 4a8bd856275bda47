"""The public face: ``stitch``, ``stitch_jit`` and their plans."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import jax

from jax_stitch import devices
from jax_stitch.frontend.capture.errors import UnstitchableError
from jax_stitch.frontend.capture.function import function_name
from jax_stitch.jit import lowering, private_rules, transformations
from jax_stitch.jit.primitive import Request, argument_types, bind, bind_jitted, origin_of
from jax_stitch.jit.programs import history
from jax_stitch.jit.tiers import guarded, inside, settled, tiered, traced_apart
from jax_stitch.jit.tiers.stitched_function import (
    AutotuneChoice,
    JitOptions,
    ModeName,
    P,
    PlannerChoice,
    R,
    StitchedFunction,
)
from jax_stitch.util import log_output, user_errors
from jax_stitch.util.jax_names import jaxpr_as_fun
from jax_stitch.util.options.autotune import autotune_for
from jax_stitch.util.options.jit_arguments import check_function, check_names, check_options
from jax_stitch.util.options.launchers import launcher_asked
from jax_stitch.util.options.modes import Mode, mode_for
from jax_stitch.util.options.planner_names import PlannerName, planner_name
from jax_stitch.util.options.strictness import strict_for
from jax_stitch.util.options.verification import verify_for
from jax_stitch.util.tracebacks import hide_frames
from jax_stitch.util.user_errors import api_boundary
from jax_stitch.util.xla_versions import EARLY

if TYPE_CHECKING:
    from jax_stitch.inspect.report.plan import Plan

_RULES = lowering, private_rules, transformations
"""Imported for the rules that they give JAX."""


hide_frames(__file__)
hide_frames(user_errors.__file__)


@api_boundary
def stitch(
    fun: Callable[P, R],
    *,
    planner: PlannerChoice = "beam",
    schedule_device: str | None = None,
    templates: str = "",
    autotune: AutotuneChoice | None = None,
    strict: bool | None = None,
    verify: bool | None = None,
) -> Callable[P, R]:
    """``fun`` with its operations re-fused into stitched kernels, to be called under ``jax.jit``.

    Arrays among the arguments may be traced; anything else is part of the function. Planning happens when JAX lowers
    the call, for the platform it lowers for. The result composes with JAX's transformations: the derivative or the
    batched form of ``fun`` is stitched in its own right. A function that cannot be stitched runs as it is, with one
    warning that says why. Outside ``jax.jit`` each call plans again: use ``stitch_jit``.

    ``planner``, ``templates``, ``autotune``, ``strict`` and ``verify`` as in ``stitch_jit``. ``schedule_device`` (a
    name of ``jax_stitch.devices``) lays the kernels out for another device than the one that runs them: the kernels for
    an "h200", with its launch dimensions, then run on a CPU.
    """
    chosen, tuning, raises = planner_name(planner), autotune_for(autotune), strict_for(strict)
    launcher_asked()  # What is wrong about the variable is said here.
    mode = mode_for(None)
    if mode is Mode.OFF or chosen is PlannerName.NONE:
        return fun
    laid_out_for = devices.get(schedule_device) if schedule_device is not None else None
    sparing = mode is Mode.AUTO and not templates
    origin = origin_of(fun, chosen, laid_out_for, templates, tuning, raises, verify_for(verify, raises), sparing)

    @functools.wraps(fun)
    def stitched(*args: P.args, **kwargs: P.kwargs) -> R:
        return bind(fun, args, kwargs, origin)

    return stitched


@overload
def stitch_jit(
    fun: Callable[P, R],
    /,
    *,
    mode: ModeName | None = None,
    planner: PlannerChoice = "beam",
    templates: str = "",
    autotune: AutotuneChoice | None = None,
    strict: bool | None = None,
    verify: bool | None = None,
    **jit_options: Unpack[JitOptions],
) -> StitchedFunction[P, R]: ...


@overload
def stitch_jit(
    *,
    mode: ModeName | None = None,
    planner: PlannerChoice = "beam",
    templates: str = "",
    autotune: AutotuneChoice | None = None,
    strict: bool | None = None,
    verify: bool | None = None,
    **jit_options: Unpack[JitOptions],
) -> Callable[[Callable[P, R]], StitchedFunction[P, R]]: ...


@api_boundary
def stitch_jit(
    fun: Any = None,
    /,
    *,
    mode: str | None = None,
    planner: str = PlannerName.BEAM,
    templates: str = "",
    autotune: bool | str | None = None,
    strict: bool | None = None,
    verify: bool | None = None,
    **jit_options: Any,
) -> Any:
    """``jax.jit`` that re-fuses what XLA fused.

    Takes every argument that ``jax.jit`` takes, works with and without parentheses, and returns a ``StitchedFunction``:
    a function with the methods of ``jax.jit``'s (a call costs the same), and with four more.

    ``plan(*args, device=None, planner=None, **kwargs)`` is the fusion plan for these arguments (arrays or
    ``jax.ShapeDtypeStruct``) on a device, which need not be there: a name of ``jax_stitch.devices`` ("h200", "a100",
    "cpu", ...), by default the one in use. It raises ``UnknownDeviceError``; ``CudaPluginMissing`` or
    ``NvrtcMissing`` for a GPU where the packages for planning are not installed.

    ``mode`` is "auto" (calls run plain ``jax.jit`` while the stitched program is made in the background, then both in
    turn, then what was clearly faster, which later processes start with: results may change by rounding between calls),
    "now" (the first call waits for the stitched program), "async" (as "auto", but the stitched program is taken without
    measuring) or "off" (plain ``jax.jit``); by default what ``$JAX_STITCH_MODE`` says, else "auto".
    ``JAX_STITCH_MODE=off`` is for all functions, whatever their ``mode``. Calls inside a function that JAX traces are
    stitched with it in every mode, but in "auto" only where that is not known to be slower, or not worth the time.
    ``status()`` is what runs now, what is being made, what that brought and cost, for calls of the function and for
    each program that it is part of; ``wait(timeout=None)`` waits until nothing more goes on in the background, and
    returns whether that is so. ``retry()`` forgets the verdicts and the plans that are kept of calls like those made so
    far: the next calls plan and measure anew.

    ``planner`` chooses what is stitched: "beam" (the best), "ilp" or "span", to compare with, or "none" (plain
    ``jax.jit``). ``plan`` takes another one for that plan. Raises ``UnknownPlannerError``, which lists them.

    ``templates`` has parts of kernels laid out in other ways than we would, in the notation in which a plan prints the
    schedules: ``"reduce_sum[GRID-CTA_8,WARP_32]; ..."``, sizes left out being open. ``plan`` takes others. What cannot
    be had raises ``TemplateError``, which lists what can, when the function is planned: the parts' names and what they
    can do depend on the arguments and the device.

    ``autotune=True`` measures what is otherwise predicted, when the function is first called: schedules of each kernel
    and XLA's own kernels for the same operations, then the whole function and plain ``jax.jit``, on the device in use,
    with arguments of the same types. What wins is kept; what does not beat XLA is not stitched. ``"top3"`` tries three
    candidates for each kernel, ``False`` none; by default what ``$JAX_STITCH_AUTOTUNE`` says (1, top3 or 0), else none.
    The times are kept for later processes. ``plan`` takes another value. Raises ``UnknownAutotuneError``, which lists
    them.

    ``strict=True`` raises where the function would run as plain ``jax.jit`` with a warning: ``UnstitchableError``,
    which names what stands against it; an internal error of JAX Stitch as the exception that it is, with a note. So
    does ``plan``. In the modes "auto" and "async" it is raised by the next call, and by ``wait``. By default what
    ``$JAX_STITCH_STRICT`` says (1 or 0), else ``False``.

    ``verify=True`` runs each newly made kernel once on the device in use, on random arguments of its types with special
    values among them, beside XLA's own computation of the same operations. A kernel that differs by more than rounding
    is refused: XLA computes its operations, and a warning names them; under ``strict`` ``WrongKernel`` is raised. The
    verdicts are kept with the kernels. Loops whose length depends on values, and kernels of more than seconds, are not
    run. By default what ``$JAX_STITCH_VERIFY`` says (1 or 0), else ``False``.
    """
    chosen, plans, tuning, raises = mode_for(mode), planner_name(planner), autotune_for(autotune), strict_for(strict)
    launcher_asked()  # What is wrong about the variable is said here.
    stitching: dict[str, Any] = {"planner": plans, "templates": templates, "autotune": tuning, "strict": raises}
    stitching["verify"] = verify
    check_options(jit_options, ("mode", *stitching))
    if fun is None:
        return functools.partial(stitch_jit, mode=chosen, **stitching, **jit_options)
    check_function(fun)
    if plans is PlannerName.NONE:
        chosen = Mode.OFF
    sparing = chosen is Mode.AUTO and not templates  # Who asks for a schedule wants the kernel.
    origin = origin_of(fun, plans, None, templates, tuning, raises, verify_for(verify, raises), sparing)
    traced = traced_apart(fun) if chosen in (Mode.AUTO, Mode.ASYNC) else fun
    of_trace = {k: v for k, v in jit_options.items() if k.startswith("static_arg") or k == "out_shardings"}
    inner: Any = jax.jit(traced, **of_trace)

    @functools.wraps(fun)
    def stitched(*args: Any, **kwargs: Any) -> Any:
        return bind_jitted(inner, args, kwargs, origin)

    stitched.__name__ = function_name(fun)
    # In line in its callers, where it can see how these split its arguments over devices.
    jitted: Any = (
        jax.jit(fun, **jit_options) if chosen is Mode.OFF else jax.jit(stitched, **{"inline": EARLY} | jit_options)
    )
    if chosen is Mode.NOW:
        jitted = guarded(traced_apart(fun), stitched, jitted, jit_options)
    why_plain = "it is not stitched in this mode" if chosen is Mode.OFF else ""
    jitted.wait, jitted.status = settled(origin.name, chosen.value, why_plain, functools.partial(inside, origin))
    if chosen in (Mode.AUTO, Mode.ASYNC):
        jitted = tiered(traced, stitched, jitted, origin, chosen, jit_options)
    jitted.__wrapped__ = fun
    jitted.jit_options, jitted.stitch_options = jit_options, stitching
    jitted.clear_cache, jitted.retry = _forgetting(origin, (jitted, inner))
    jitted.plan = functools.partial(_plan, inner, origin, jax.jit(traced, **{**jit_options, "keep_unused": True}))
    return jitted


def _forgetting(origin: Request, jitted: Sequence[Any]) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return ``clear_cache`` and ``retry`` of a function, of which all that is ``jitted`` has traces."""
    clears = [function.clear_cache for function in jitted]

    def clear_cache() -> None:
        """Forget every trace and every compiled program of the function."""
        for clear in clears:
            clear()
        history.forget(origin)

    def retry() -> None:
        """Forget what is kept about calls like those made so far, also on disk: the next ones plan and measure anew."""
        history.remove_kept(origin)
        clear_cache()

    return clear_cache, retry


@api_boundary
def _plan(
    jitted: Any,
    usual: Request,
    plain: Any,
    /,
    *args: Any,
    device: str | None = None,
    planner: str | None = None,
    templates: str | None = None,
    autotune: bool | str | None = None,
    strict: bool | None = None,
    **kwargs: Any,
) -> Plan:
    log_output.follow()
    from jax_stitch.inspect.report.planning import make_plan, placement_of

    wanted, chosen = devices.get(device), usual.planner if planner is None else planner_name(planner)
    asked = usual.templates if templates is None else templates
    tuning = usual.autotune if autotune is None else autotune_for(autotune)
    check_names(jitted, kwargs, ("device", "planner", "templates", "autotune", "strict"), "plan")
    traced = jitted.trace(*args, **kwargs)
    around = plain.trace(*args, **kwargs)
    placement = placement_of(around) if jax.device_count() > 1 else None

    def flat(*values: Any) -> list[Any]:
        return jaxpr_as_fun(traced.jaxpr)(*values)

    flat.__name__ = flat.__qualname__ = traced.fun_name
    leaves = jax.tree.leaves(around.args_info)
    donated = [k for k, leaf in enumerate(leaves) if leaf.donated]
    plan = make_plan(flat, argument_types(traced.jaxpr), wanted, chosen, placement, asked, tuning, donated)
    if plan.unstitched is not None and (usual.strict if strict is None else strict_for(strict)):
        raise UnstitchableError(usual.name, plan.unstitched)
    return plan
