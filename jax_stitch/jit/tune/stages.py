"""The stages from a capture to a program ready to compile, with measurements between them on request."""

from __future__ import annotations

from jax_stitch.analysis.results import forget
from jax_stitch.backend.compile import target_of
from jax_stitch.devices import Device
from jax_stitch.frontend.capture.captured import Captured
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.fusion.planners.beam import LARGEST
from jax_stitch.jit.tune.in_place import in_place
from jax_stitch.jit.tune.slower import without_slower
from jax_stitch.jit.tune.sound import sound
from jax_stitch.jit.tune.spills import fit
from jax_stitch.jit.tune.worth import worthwhile
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.util.collecting import seldom
from jax_stitch.util.options.autotune import Autotune
from jax_stitch.util.options.planner_names import PlannerName


def stitch_and_tune(
    capture: Captured,
    device: Device,
    laid_out_for: Device,
    planner: PlannerName,
    templates: str,
    autotune: Autotune,
    patience: Patience = ENDLESS,
    *,
    sparing: bool = False,
) -> Stitched:
    """Stitch a captured function with kernels for ``laid_out_for`` that run on ``device``, and tune them there if it is
    attached. Raise the errors of ``stitch_capture``, and with ``sparing`` those of ``worthwhile``.

    With ``Autotune.ALL`` and the default planner, the plans of other planners compete: that of "ilp" only for graphs
    that it plans in seconds.
    """

    @seldom()
    def planned(name: PlannerName) -> Stitched:
        made = sound(stitch_capture(capture, laid_out_for, name, templates, patience))
        made = made if templates else without_slower(made)
        return worthwhile(made) if sparing else made

    def fitted(name: PlannerName) -> Stitched:
        made = fit(planned(name), target_of(device))
        forget()
        return made

    if autotune is Autotune.OFF or not device.attached:
        with seldom():
            made = in_place(planned(planner))
            forget()
            return fit(made, target_of(device))
    from jax_stitch.jit.tune.tuner import tune  # Imported only here: it imports JAX.

    first = fitted(planner)
    others: list[PlannerName] = []
    if autotune is Autotune.ALL and planner is PlannerName.BEAM and not templates:
        others = [PlannerName.SPAN, *([PlannerName.ILP] if len(first.plan.graph) <= LARGEST else [])]
    # Kernels are measured on their own input arrays, which must not be overwritten: in-place writes come last.
    return in_place(tune(first, device, autotune, {name: fitted(name) for name in others}))
