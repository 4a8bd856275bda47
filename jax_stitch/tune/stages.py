"""The stages from a capture to what is compiled, with what is measured among them where that is asked for."""

from __future__ import annotations

from jax_stitch.analysis.results import forget
from jax_stitch.capture.captured import Captured
from jax_stitch.compile import target_of
from jax_stitch.devices import Device
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.fusion.planners.beam import LARGEST
from jax_stitch.options.autotune import Autotune
from jax_stitch.options.planner_names import PlannerName
from jax_stitch.pipeline import Stitched, stitch_capture
from jax_stitch.tune.in_place import in_place
from jax_stitch.tune.slower import without_slower
from jax_stitch.tune.sound import sound
from jax_stitch.tune.spills import fit
from jax_stitch.tune.worth import worthwhile
from jax_stitch.util.collecting import seldom


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
    """A captured function with its kernels for ``laid_out_for``, which run on ``device``; measured there if that is
    attached. Raises what ``stitch_capture`` raises; where it is ``sparing``, what ``worthwhile`` does.

    Where all is to be tried and the planner is the default, the plans of the others are among it: that of "ilp" for
    graphs that it is done with in seconds.
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
    from jax_stitch.tune.tuner import tune  # It runs them, by JAX.

    first = fitted(planner)
    others: list[PlannerName] = []
    if autotune is Autotune.ALL and planner is PlannerName.BEAM and not templates:
        others = [PlannerName.SPAN, *([PlannerName.ILP] if len(first.plan.graph) <= LARGEST else [])]
    # Kernels are measured on arrays of their own, which they must not write over.
    return in_place(tune(first, device, autotune, {name: fitted(name) for name in others}))
