"""Planning of a graph: the planner's patterns, packed into launches, with each kernel's reads settled."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from jax_stitch.analysis.patterns.pattern import Boundary, FusionPlan, Pattern
from jax_stitch.analysis.results import forget
from jax_stitch.analysis.sizes import node_bytes
from jax_stitch.analysis.support import reason_left
from jax_stitch.devices import Device
from jax_stitch.fusion.calls import call_seconds, call_seconds_left, seconds_of
from jax_stitch.fusion.graph_passes import EXPANDING, PACKING, STREAMING, expanding, splitting
from jax_stitch.fusion.launches.form_launches import kernels_of
from jax_stitch.fusion.launches.packing import Kernel
from jax_stitch.fusion.launches.starts import with_starts
from jax_stitch.fusion.outcome import Outcome, Planner
from jax_stitch.fusion.patience import ENDLESS, Patience
from jax_stitch.fusion.pays import paying
from jax_stitch.fusion.pieces import LARGEST_WHOLE, in_pieces
from jax_stitch.fusion.plan_cost import best_of, predicted
from jax_stitch.fusion.planners import PLANNERS
from jax_stitch.fusion.prologues import INSIDE
from jax_stitch.fusion.rewrites import small_dots
from jax_stitch.fusion.rewrites.chosen import expandable, is_in_batch
from jax_stitch.fusion.rewrites.single_steps import SINGLE_STEP, in_single_step
from jax_stitch.graph.model import ONE_KERNEL, STREAMED, Graph, Node
from jax_stitch.graph.rewrites.complex_parts import names_in_parts
from jax_stitch.ir.operations import ELEMENTWISE
from jax_stitch.loops.carried import counters
from jax_stitch.loops.loop_patterns import prepared, stitched_loops
from jax_stitch.loops.product_rows import product_patterns
from jax_stitch.loops.straight import is_all_straight, straight_patterns
from jax_stitch.loops.thread_loops import ThreadLoops
from jax_stitch.util.options.planner_names import PlannerName
from jax_stitch.util.values import replace


def explore(
    graph: Graph,
    device: Device,
    planner: PlannerName = PlannerName.BEAM,
    patience: Patience = ENDLESS,
    *,
    is_body: bool = False,
) -> FusionPlan:
    """Choose the patterns of ``graph`` (and of the computations that it calls) that are worth a stitched kernel on
    ``device``. With ``is_body`` the graph is the body of a loop. When the ``patience`` is over, return the best plan
    found by then.
    """
    if PLANNERS[planner].stitches_loops:
        streams = STREAMING.run(graph, device)
        if streams is not graph:
            plan = _explore(streams, device, planner, patience, is_body)
            if not any(STREAMED in n.attributes for n in _calls_left(plan)):
                return plan
    return _explore(graph, device, planner, patience, is_body)


def _explore(graph: Graph, device: Device, planner: PlannerName, patience: Patience, is_body: bool) -> FusionPlan:
    """Return the plan of a graph, and of the computations that it calls. Complex values are in parts where kernels take
    what computes them.
    """
    names = names_in_parts(graph) if PLANNERS[planner].stitches_loops else frozenset()
    whole = frozenset[str]()
    while names - whole:
        apart = splitting(whole).run(graph, device)
        plan = _explore_real(apart, device, planner, patience, is_body)
        taken = {plan.graph[i].name for kernel in plan.kernels for p in kernel for i in p.nodes}
        left = {n.name for n in _calls_left(plan)} & (names - whole)
        if taken & names and not left:
            return plan
        whole = whole | left if taken & names else names
    return _explore_real(graph, device, planner, patience, is_body)


def _explore_real(graph: Graph, device: Device, planner: PlannerName, patience: Patience, is_body: bool) -> FusionPlan:
    """Return the plan of a graph whose complex values are what they are to be."""
    notes: tuple[str, ...] = ()
    chosen: dict[int, str] = {}
    if PLANNERS[planner].stitches_loops:
        expanded = EXPANDING.run(graph, device)
        graph, notes = expanded, small_dots.note(graph, expanded)
        chosen = expandable(graph, device)
    best = _explored(_expanded(graph, chosen, device), device, planner, patience, is_body)
    while left := _left_over(best, chosen.values()):
        chosen = {i: name for i, name in chosen.items() if name not in left}
        best = _explored(_expanded(graph, chosen, device), device, planner, patience, is_body)
    if (stepped := _in_single_step(graph, chosen, device)) is not None:
        other = _explored(stepped, device, planner, patience, is_body)
        if not any(n.attributes.get(SINGLE_STEP) for n in _calls_left(other)):
            best = other
    forget()
    best = with_starts(best, device)
    children = _children(best, device, planner, patience)
    others = best.alternatives if device.target.weighs_alternatives and not children else ()
    whole = (p for p in others if not _calls_left(p) and not _left_over(p, chosen.values()))
    alternatives = tuple(replace(with_starts(p, device), notes=(*p.notes, *notes)) for p in whole)
    return replace(best, children=children, notes=(*best.notes, *notes), alternatives=alternatives)


def _expanded(graph: Graph, chosen: Collection[int], device: Device) -> Graph:
    return expanding(frozenset(chosen)).run(graph, device) if chosen else graph


def _in_single_step(graph: Graph, chosen: Mapping[int, str], device: Device) -> Graph | None:
    """Return the graph with the factorizations that no kernel of straight code takes in a loop of one step; None where
    there are none.
    """
    left = [n.id for n in graph.nodes if is_in_batch(graph, n, device) and n.id not in chosen]
    stepped = in_single_step(graph, left) if left else None
    if stepped is None:
        return None
    names = set(chosen.values())
    return _expanded(stepped, [i for i, name in expandable(stepped, device).items() if name in names], device)


def _left_over(plan: FusionPlan, names: Collection[str]) -> set[str]:
    """Return the names of expanded operations that no kernel takes as a whole: XLA does better with the original."""
    taken = {i for kernel in plan.kernels for p in kernel for i in (*p.nodes, *p.copies)}
    parts = ELEMENTWISE | {"dot"}
    return {n.name for n in plan.graph.nodes if n.op in parts and n.id not in taken} & set(names)


def _explored(graph: Graph, device: Device, planner: PlannerName, patience: Patience, is_body: bool) -> FusionPlan:
    """Return the plan of a graph as it is, without the plans of the computations that it calls."""
    plans = PLANNERS[planner]
    loops = ThreadLoops((), MappingProxyType({}))
    if plans.packs:
        graph = PACKING.run(graph, device)
    if plans.stitches_loops:
        graph = prepared(graph, device)
        loops = stitched_loops(graph, device)
    if is_body:
        loops = replace(loops, refused=MappingProxyType({**loops.refused, **dict.fromkeys(counters(graph), COUNTS)}))
    if plans.stitches_loops and len(graph) > LARGEST_SEARCHED and is_all_straight(graph, loops.patterns, device):
        straight = straight_patterns(graph, loops.patterns, device)
        if straight:
            whole = ThreadLoops((*loops.patterns, *straight), loops.refused)
            return _plan_of(plans.choose(graph, whole, device, patience), device, plans.packs)
    outcomes = _outcomes(plans, graph, loops, device, patience)
    made = [_plan_of(outcome, device, plans.packs) for outcome in outcomes]
    best = _first(best_of(made, device), made)
    straight = _straight(graph, loops, device) if plans.stitches_loops and len(graph) <= LARGEST_WHOLE else []
    if not straight:
        return best
    whole = ThreadLoops((*loops.patterns, *straight), loops.refused)
    begun = plans.begin(graph, whole, device).outcome if plans.begin and not patience.is_endless else None
    other = _plan_of(begun or plans.choose(graph, whole, device, patience), device, plans.packs)
    saved = call_seconds(best, device) - call_seconds(other, device)
    if saved <= device.target.launch_seconds:
        return best
    moved, moved_by_other = predicted(best, device), predicted(other, device)
    if moved_by_other.bytes > device.l2_bytes and moved.is_better_than(moved_by_other):
        return best  # The plan with fewer calls breaks up a kernel that reads large arrays once.
    return _first(other, [best, other])


def _outcomes(
    plans: Planner, graph: Graph, loops: ThreadLoops, device: Device, patience: Patience
) -> tuple[Outcome, ...]:
    """Return the outcomes for a graph as a whole and in pieces. With limited patience, a graph that can be cut is not
    improved as a whole: the beam found a much better plan for only two of 20 such graphs, and the pieces' plan was
    better still, in a part of the time.
    """
    if len(graph) > LARGEST_WHOLE:
        cut = in_pieces(plans, graph, loops, device, patience, is_planned=False)
        assert cut is not None
        return (cut,)
    if plans.begin is None or not plans.compares:
        return (plans.choose(graph, loops, device, patience),)
    start = time.process_time()
    begun = plans.begin(graph, loops, device)
    taken = time.process_time() - start  # All pieces together take about as long as the whole.
    is_good = begun.missing < POOR * begun.most
    if not patience.is_endless and (not begun.missing or (is_good and not patience.has(taken))):
        return (begun.outcome,)
    with patience.spent():
        cut = in_pieces(plans, graph, loops, device, patience, is_planned=True)
        whole = begun.improved(patience, True) if patience.is_endless or cut is None else begun.outcome
    return (whole,) if cut is None else (whole, cut)


POOR = 0.5
"""The share of the bound on savings that a plan has to miss, for other plans to be searched in any case."""


def _first(chosen: FusionPlan, plans: Sequence[FusionPlan]) -> FusionPlan:
    """Return the chosen plan, with the others as its alternatives."""
    others = (replace(p, alternatives=()) for p in plans if p is not chosen)
    return replace(chosen, alternatives=tuple(p for p in others if p.kernels != chosen.kernels))


def _straight(graph: Graph, loops: ThreadLoops, device: Device) -> list[Pattern]:
    """Return the patterns of straight code that are each faster than XLA's kernels for it, beside those of loops."""

    def plan(*more: Pattern) -> FusionPlan:
        return FusionPlan(graph, tuple((p,) for p in (*loops.patterns, *more)), (), {})

    @functools.cache
    def left() -> float:
        return call_seconds_left(plan(), device)

    def may_pay(nodes: Collection[int], inputs: Collection[int]) -> bool:
        """Return whether a pattern would pay if it cost a launch alone: its other costs are known only after layout."""
        bare = Pattern(frozenset(nodes), 1, {}, tuple(inputs), ())
        least = device.target.launch_seconds + call_seconds_left(plan(bare), device)
        return least < left() * (1 + ROUNDING)

    def straight(taken: Sequence[Pattern]) -> list[Pattern]:
        return straight_patterns(graph, (*loops.patterns, *taken), device, may_pay)

    def products(taken: Sequence[Pattern]) -> list[Pattern]:
        return product_patterns(graph, (*loops.patterns, *taken), device)

    def chosen(*kinds: Callable[[Sequence[Pattern]], list[Pattern]]) -> list[Pattern]:
        """Return the patterns that pay, one kind after the other."""
        taken: list[Pattern] = []
        for kind in kinds:
            found = kind(taken)
            plain = call_seconds(plan(*taken), device) if found else 0.0
            gain = PRODUCT_GAIN if kind is products else 0.0
            taken += [
                p for p in found if call_seconds(plan(*taken, p), device) + gain * seconds_of(graph, p, device) < plain
            ]
        return taken

    if not any(n.op == "dot" for n in graph.nodes):
        return chosen(straight)
    return min(chosen(straight, products), chosen(products, straight), key=lambda p: call_seconds(plan(*p), device))


PRODUCT_GAIN = 0.15
"""The part of a product's time that taking it from XLA's library has to save: about the error of both estimates."""

ROUNDING = 1e-9
"""The relative rounding error allowed between sums of the same seconds."""


LARGEST_SEARCHED = 200
"""The most operations of a graph for which other kernels are searched where it is only loops and straight code."""

COUNTS = "what counts a loop's steps, by which XLA knows how many there are"


def _plan_of(outcome: Outcome, device: Device, packs: bool) -> FusionPlan:
    kernels = paying(outcome.graph, kernels_of(outcome, device, packs), device)
    return FusionPlan(outcome.graph, kernels, _boundaries(outcome.graph, kernels, outcome.refused), {}, outcome.notes)


def _children(
    plan: FusionPlan, device: Device, planner: PlannerName, patience: Patience
) -> dict[tuple[int, str], FusionPlan]:
    """Return the plans of the loops and branches that stay with XLA. Each has its own copy of the graph, which tells
    to what call a kernel belongs: HLO may call one computation from two places.
    """
    return {
        (node.id, name): _left_alone(replace(called))
        if _is_in_cache(node, called, device)
        else explore(_called(called, name == "body"), device, planner, patience, is_body=name == "body")
        for node in _calls_left(plan)
        for name, called in node.graphs.items()
    }


def _called(graph: Graph, is_body: bool) -> Graph:
    """Return a copy of a loop's or branch's graph. In a body, each carried result takes the memory of its parameter."""
    return replace(graph, layouts=graph.layouts.with_homes({k: k for k in range(len(graph.results)) if is_body}))


def _calls_left(plan: FusionPlan) -> list[Node]:
    """Return the loops, branches and calls that are in no kernel."""
    whole = {i for kernel in plan.kernels for p in kernel for i in p.nodes}
    return [n for n in plan.graph.nodes if n.op in ("while", "conditional", "call") and n.id not in whole]


def _is_in_cache(node: Node, body: Graph, device: Device) -> bool:
    """Return whether each value of an iteration fits a core's cache, or XLA has one kernel for the whole loop: on a CPU
    its calls, or none, then cost less than ours.
    """
    if not device.target.inlines_loops or node.op != "while":
        return False
    if ONE_KERNEL in node.attributes:
        return True
    touched = (_touched_bytes(body, n) for n in body.nodes if n.op not in ("parameter", "while"))
    return all(size <= device.shared_per_block_optin for size in touched)


def _touched_bytes(body: Graph, node: Node) -> int:
    """Return the bytes of a node that an iteration touches: of a product its factors too. Of an in-place update only
    the slice counts: stacked results of a loop pass through the cache a slice at a time.
    """
    if node.op == "dot":
        return sum(node_bytes(body[i]) for i in (*node.operands, node.id))
    return node_bytes(body[node.operands[1]] if node.op == "dynamic-update-slice" else node)


def _left_alone(graph: Graph) -> FusionPlan:
    reason = "the body of a loop whose values stay in the cache, where XLA's calls cost less"
    boundaries = tuple(replace(c, reason=reason) for c in _boundaries(graph, (), {}))
    return FusionPlan(graph, (), boundaries, {})


def _boundaries(graph: Graph, kernels: Sequence[Kernel], loops: Mapping[int, str]) -> tuple[Boundary, ...]:
    """Return the reason why each node outside all kernels is left to XLA."""
    inside = {i for kernel in kernels for p in kernel for i in p.nodes}
    products = {n.kernel for n in graph.nodes if n.kernel and n.op in ("dot", "convolution")}
    boundaries: list[Boundary] = []
    for node in graph.nodes:
        if node.id in inside or node.op in ("parameter", "constant", "iota", "get-tuple-element", "tuple"):
            continue
        reason = loops.get(node.id) or reason_left(graph, node)
        whose = INSIDE if node.kernel in products else None
        boundaries.append(Boundary(node.id, reason or whose or "XLA already makes one kernel of it and its neighbours"))
    return tuple(boundaries)
