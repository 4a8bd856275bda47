"""PTX text as instructions, basic blocks and what registers are made of; enough of it for kernels of one entry."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import networkx

_LABEL = re.compile(r"^(\$?[\w$]+):$")
_REGISTER = re.compile(r"%[a-zA-Z]+\d+|%p\d+")
_STORES = ("st.", "red.", "atom.")
_NO_RESULT = ("st.", "red.", "bra", "bar", "ret", "exit", "membar", "fence", "nanosleep", "trap", "call", "prefetch")
_VARYING = ("%tid", "%laneid", "%lanemask", "%warpid", "%clock", "%globaltimer")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One statement: ``@%p1 opcode operands;``"""

    line: int
    guard: str
    """The register of ``@%p`` or ``@!%p``; empty without one."""
    opcode: str
    operands: str

    @property
    def registers(self) -> list[str]:
        return _REGISTER.findall(self.operands)

    @property
    def results(self) -> list[str]:
        """The registers that it writes."""
        if self.opcode.startswith(_NO_RESULT):
            return []
        if self.operands.startswith("{"):
            return _REGISTER.findall(self.operands[: self.operands.index("}")])
        return _REGISTER.findall(self.operands.split(",")[0])

    @property
    def sources(self) -> list[str]:
        found = self.registers[len(self.results) :]
        return [*found, self.guard] if self.guard else found

    @property
    def address(self) -> str:
        """What stands in its brackets; empty without."""
        found = re.search(r"\[([^\]]*)\]", self.operands)
        return found[1] if found else ""

    @property
    def is_barrier(self) -> bool:
        return self.opcode.startswith(("bar.sync", "barrier.sync", "barrier.cluster.arrive", "barrier.cluster.wait"))


NOTHING: frozenset[str] = frozenset()
VARYING = "varying"
"""Among the origins of a value: it may differ between the threads of a block."""
_OF_LANES = ("atom.", "shfl", "vote", "match", "activemask", "elect")


@dataclass(slots=True)
class _Facts:
    """What is known of a kernel's values: the parameters that they may point into, and whether they vary."""

    entry: list[dict[str, frozenset[str]]]
    """Of registers, before each block."""
    divergent: set[int]
    """Blocks that end in a branch which not all threads take alike."""
    kept: set[str]
    """What pointers in shared or local memory may point into."""
    at: dict[int, tuple[frozenset[str], bool]]
    """Of each instruction: what its address points into, and whether only some threads may come to it."""

    def size(self) -> int:
        """Grows while anything new is found."""
        return sum(len(o) + 1 for held in self.entry for o in held.values()) + len(self.divergent) + len(self.kept)


def _joined(held: Mapping[str, frozenset[str]], registers: list[str]) -> frozenset[str]:
    return NOTHING.union(*(held.get(r, NOTHING) for r in registers))


class Kernel:
    """The entry of a PTX module."""

    def __init__(self, text: str) -> None:
        self.text = text
        head = re.search(r"\.entry\s+(\S+?)\s*\(", text)
        if head is None:
            raise ValueError("the text has no .entry")
        self.name = head[1]
        lines = text.split("\n")
        first = text.count("\n", 0, head.start())
        self._begin = next(k for k in range(first, len(lines)) if lines[k].startswith("{"))
        self._end = next((k for k in range(self._begin, len(lines)) if lines[k] == "}"), len(lines))
        self.parameters: list[str] = re.findall(r"\.param \S+.*?(\S+_param_\d+)", "\n".join(lines[first : self._begin]))

    @cached_property
    def blocks(self) -> list[list[Instruction]]:
        """Basic blocks, in order."""
        return [block for _, block in self._labelled]

    @cached_property
    def _labelled(self) -> list[tuple[list[str], list[Instruction]]]:
        found: list[tuple[list[str], list[Instruction]]] = [([], [])]
        for number, line in enumerate(self.text.split("\n")[self._begin + 1 : self._end], self._begin + 1):
            for statement in _statements(line):
                if (label := _LABEL.match(statement)) is not None:
                    if found[-1][1]:
                        found.append(([], []))
                    found[-1][0].append(label[1])
                elif (made := _instruction(statement, number)) is not None:
                    found[-1][1].append(made)
                    if made.opcode.startswith(("bra", "ret", "exit", "brx")):
                        found.append(([], []))
        return [entry for entry in found if entry[0] or entry[1]]

    @cached_property
    def instructions(self) -> list[Instruction]:
        return [i for block in self.blocks for i in block]

    def uses(self, *opcodes: str) -> bool:
        """Whether any instruction begins so."""
        return any(i.opcode.startswith(opcodes) for i in self.instructions)

    @cached_property
    def successors(self) -> list[list[int]]:
        """Of each block; the number of blocks stands for the kernel's end."""
        at = {label: k for k, (labels, _) in enumerate(self._labelled) for label in labels}
        found: list[list[int]] = []
        for k, block in enumerate(self.blocks):
            last = block[-1] if block else None
            following = [k + 1] if k + 1 < len(self.blocks) else []
            if last is not None and last.opcode.startswith("bra"):
                target = [at[last.operands.strip()]]
                found.append(target + following if last.guard else target)
            elif last is not None and last.opcode.startswith(("ret", "exit")):
                found.append([*following, len(self.blocks)] if last.guard else [len(self.blocks)])
            else:
                found.append(following or [len(self.blocks)])
        return found

    @cached_property
    def controlled_by(self) -> Mapping[int, set[int]]:
        """For each block the blocks whose branch decides whether it is run."""
        end = len(self.blocks)
        backward = networkx.DiGraph()
        backward.add_nodes_from(range(end + 1))
        for k, after in enumerate(self.successors):
            backward.add_edges_from((s, k) for s in after)
        above = dict(networkx.immediate_dominators(backward, end))
        found: dict[int, set[int]] = defaultdict(set)
        for k, after in enumerate(self.successors):
            if len(set(after)) < 2:
                continue
            for s in set(after):
                at: int | None = s
                while at is not None and at != above.get(k) and at != end:
                    found[at].add(k)
                    at = above.get(at) if above.get(at) != at else None
        return found

    @cached_property
    def _facts(self) -> _Facts:
        """By iteration, since registers are used again for other values: what each holds before each block."""
        known = _Facts([{} for _ in range(len(self.blocks) + 1)], set(), set(), {})
        while True:
            size = known.size()
            for k, block in enumerate(self.blocks):
                held = dict(known.entry[k])
                apart = any(c in known.divergent for c in self.controlled_by.get(k, ()))
                for i in block:
                    self._step(i, held, known, apart)
                for s in self.successors[k]:
                    for register, origins in held.items():
                        known.entry[s][register] = known.entry[s].get(register, NOTHING) | origins
                if block and block[-1].guard and VARYING in held.get(block[-1].guard, NOTHING):
                    known.divergent.add(k)
            if known.size() == size:
                return known

    def _step(self, i: Instruction, held: dict[str, frozenset[str]], known: _Facts, apart: bool) -> None:
        address = _joined(held, _REGISTER.findall(i.address))
        guard = held.get(i.guard, NOTHING) & {VARYING}
        known.at[id(i)] = address - {VARYING}, bool(guard) or apart
        if i.opcode.startswith("ld.param"):
            found = frozenset(p for p in self.parameters if re.search(rf"\b{re.escape(p)}\b", i.address))
            found = found or frozenset(self.parameters)
        elif i.opcode.startswith("ld."):
            found = address & {VARYING}
            if i.opcode.startswith(("ld.local", "ld.shared")):
                found |= known.kept
        else:
            found = _joined(held, i.sources)
        if i.opcode.startswith(("st.local", "st.shared")):
            known.kept |= _joined(held, _REGISTER.findall(i.operands.rpartition("]")[2])) - {VARYING}
        if guard or apart or i.opcode.startswith(_OF_LANES) or any(word in i.operands for word in _VARYING):
            found |= {VARYING}
        for result in i.results:
            held[result] = found | (held.get(result, NOTHING) if i.guard else NOTHING)

    def accessed(self, i: Instruction) -> frozenset[str]:
        """The parameters in whose buffers a global access may be."""
        return self._facts.at[id(i)][0]

    def divergent_barriers(self) -> list[Instruction]:
        """Barriers that not all threads of a block are sure to come to."""
        return [i for i in self.instructions if i.is_barrier and self._facts.at[id(i)][1]]

    def stale_reads(self) -> list[Instruction]:
        """Reads past the caches' coherence (``ld.global.nc``) of buffers that the kernel writes itself."""
        stores = (i for i in self.instructions if i.opcode.startswith(_STORES) and ".global" in i.opcode)
        written = NOTHING.union(*map(self.accessed, stores))
        return [i for i in self.instructions if i.opcode.startswith("ld.global.nc") and self.accessed(i) & written]


def _statements(line: str) -> Iterator[str]:
    text = line.split("//")[0].strip()
    if text in ("", "{", "}") or text.startswith("."):
        return
    if _LABEL.match(text):
        yield text
        return
    yield from (part.strip() for part in text.split(";") if part.strip() not in ("", "{", "}"))


def _instruction(statement: str, line: int) -> Instruction | None:
    found = re.match(r"(?:@!?(%\w+)\s+)?([a-z][\w.:]*)\s*(.*)$", statement, re.DOTALL)
    return None if found is None else Instruction(line, found[1] or "", found[2], found[3])
