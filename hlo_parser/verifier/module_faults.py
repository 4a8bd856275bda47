"""What the header of a module says, against the entry computation: layouts, aliases and donors."""

from __future__ import annotations

from collections.abc import Iterator

from ..attributes import Alias, Donor, EntryLayout
from ..counts import shape_bytes
from ..model import Module
from ..shapes import Shape, part, without_layout
from ..values import Verbatim
from .fault import Fault
from .rules import parameters, result


def module_faults(module: Module) -> Iterator[Fault]:
    """Yield faults of the header's attributes."""
    name = module.entry.name
    layout = module.attributes.get("entry_computation_layout")
    if isinstance(layout, EntryLayout):
        if tuple(map(without_layout, layout.parameters)) != parameters(module.entry):
            yield Fault("entry_computation_layout disagrees with the parameters", name)
        if without_layout(layout.result) != result(module.entry):
            yield Fault("entry_computation_layout disagrees with the root", name)
    aliases = module.attributes.get("input_output_alias", ())
    if not isinstance(aliases, Verbatim):
        yield from _alias_faults(module, aliases)
    donors = module.attributes.get("buffer_donor", ())
    for donor in () if isinstance(donors, Verbatim) else donors:
        if _parameter_part(module, donor) is None:
            yield Fault(f"buffer_donor {donor} names no part of a parameter", name)


def _parameter_part(module: Module, at: Alias | Donor) -> Shape | None:
    shapes = parameters(module.entry)
    return part(shapes[at.parameter], at.parameter_index) if 0 <= at.parameter < len(shapes) else None


def _alias_faults(module: Module, aliases: tuple[Alias, ...]) -> Iterator[Fault]:
    name = module.entry.name
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for alias in aliases:
        source, target = _parameter_part(module, alias), part(result(module.entry), alias.output_index)
        if source is None or target is None:
            what = "parameter" if source is None else "result"
            yield Fault(f"input_output_alias {alias} names no part of the {what}", name)
        elif shape_bytes(source) != shape_bytes(target):
            yield Fault(f"input_output_alias {alias}: {source} and {target} differ in size", name)
        if (alias.parameter, alias.parameter_index) in seen:
            yield Fault(f"input_output_alias {alias}: the parameter's part is aliased twice", name)
        seen.add((alias.parameter, alias.parameter_index))
