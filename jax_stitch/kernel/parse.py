"""A kernel from its text."""

from __future__ import annotations

from typing import Any

from jax_stitch.kernel import model, threads
from jax_stitch.kernel import statements as st
from jax_stitch.kernel.expressions import Element, Ref, Test
from jax_stitch.kernel.forms import KINDS, FieldForm, Kind, forms, required
from jax_stitch.kernel.intrinsics import TABLE
from jax_stitch.kernel.parse_values import ValueParser
from jax_stitch.kernel.tokens import KernelTextError, Tokens
from jax_stitch.util.values import replace


def parse(text: str) -> model.Kernel:
    """Return the kernel that ``text`` says; raises ``KernelTextError``, which names the line."""
    kernels = parse_all(text)
    if len(kernels) != 1:
        raise KernelTextError(f"line 1: one kernel is expected, not {len(kernels)}")
    return kernels[0]


def parse_all(text: str) -> tuple[model.Kernel, ...]:
    """Return the kernels that stand in ``text`` one after another."""
    tokens = Tokens(text)
    tokens.skip_lines()
    kernels: list[model.Kernel] = []
    while tokens.peek().kind != "end":
        kernel = _Parser(tokens).node()
        if not isinstance(kernel, model.Kernel):
            raise tokens.error("a kernel is expected before")
        kernels.append(kernel)
    return tuple(kernels)


class _Parser(ValueParser):
    def node(self) -> Any:
        """Return a node and what is inside it, with the end of its last line."""
        node = self._statement() or self._keyword()
        self.tokens.end_line()
        return node

    def _statement(self) -> Any:
        """Return the nodes that have a form of their own."""
        after = self.tokens.peek(1)
        if after.text in ("=", "[", ":") and after.kind == "mark":
            return self._assignment()
        if self.tokens.take("let"):
            name = self.tokens.name()
            self.tokens.expect(":")
            dtype = self.tokens.name()
            self.tokens.expect("=")
            values = {"name": name, "dtype": dtype, "value": self.value()}
            return self._entered(st.Define, values)
        if self.tokens.take("var"):
            name = self.tokens.name()
            self.tokens.expect(":")
            made = st.Allocate(name, self.tokens.name(), threads.Space.LOCAL)
            return self._entered(st.Allocate, {f.name: getattr(made, f.name) for f in forms(st.Allocate)})
        if self.tokens.take("only"):
            who = threads.Who[self.tokens.name().upper()]
            self.tokens.expect(":")
            return replace(self._assignment(), who=who)
        if self.tokens.is_next("if") or self.tokens.is_next("else"):
            tests: list[Test] = []
            if self.tokens.next().text == "if":
                tests.append(self.test())
                while self.tokens.take("and"):
                    tests.append(self.test())
            return st.Case(tuple(tests), self._braces())
        return None

    def _assignment(self) -> st.Assign:
        target = self.value()
        if not isinstance(target, Ref | Element):
            raise self.tokens.error("what is written is a name or an element; it is expected")
        self.tokens.expect("=")
        return st.Assign(target, self.value())

    def _entered(self, kind: type[Any], values: dict[str, Any]) -> Any:
        self.context.enter(kind, values)
        return kind(**values)

    def _keyword(self) -> Any:
        word = self.tokens.name()
        if word not in KINDS and word not in TABLE:
            raise self.tokens.error(f"{word!r} begins nothing; a statement is expected before it")
        kind = KINDS.get(word, st.Apply)
        known = {f.name: f for f in forms(kind)}
        values: dict[str, Any] = {f.name: f.default for f in forms(kind) if not required(f)}
        if word in TABLE:
            values["intrinsic"] = word
        while self.tokens.peek().kind == "name":
            name = self.tokens.name()
            if name not in known or known[name].is_inside:
                raise self.tokens.error(f"{word} has no field {name!r}; another is expected before it")
            self.tokens.expect("=")
            values[name] = self._field(known[name])
        self.context.enter(kind, values)
        inside = [f for f in forms(kind) if f.is_inside]
        values |= {f.name: () for f in inside if required(f)}
        if self.tokens.is_next("{"):
            values |= self._sections(inside) if len(inside) > 1 else {inside[0].name: self._inner(inside[0])}
        if missing := [f.name for f in forms(kind) if f.name not in values]:
            raise self.tokens.error(f"{word} lacks {missing[0]}; it is expected before")
        return kind(**values)

    def _sections(self, inside: list[FieldForm]) -> dict[str, Any]:
        sections: dict[str, Any] = {}
        by_name = {f.name: f for f in inside}
        self.tokens.expect("{")
        self.tokens.skip_lines()
        while not self.tokens.take("}"):
            name = self.tokens.name()
            if name not in by_name:
                raise self.tokens.error(f"there is no section {name!r}; another is expected before")
            sections[name] = self._inner(by_name[name])
            self.tokens.end_line()
        return sections

    def _inner(self, form: FieldForm) -> Any:
        nodes = self._braces()
        return nodes if form.kind is Kind.NODES else nodes[0]

    def _braces(self) -> tuple[Any, ...]:
        nodes: list[Any] = []
        self.tokens.expect("{")
        self.tokens.skip_lines()
        while not self.tokens.take("}"):
            nodes.append(self.node())
        return tuple(nodes)

    def _field(self, form: FieldForm) -> Any:
        if form.kind in (Kind.INT, Kind.VALUE) and self.tokens.is_next("none"):
            self.tokens.next()
            return None
        match form.kind:
            case Kind.INT:
                return self.tokens.integer()
            case Kind.BOOL:
                return self.tokens.name() == "true"
            case Kind.NAMED:
                assert form.enum is not None
                return form.enum[self.tokens.name().upper()]
            case Kind.AXIS:
                return self._axis()
            case Kind.WORD:
                return self.tokens.word()
            case Kind.INDEX:
                return self.index()
            case Kind.VALUE:
                return self.value()
        return self._list(form)

    def _axis(self) -> st.Axis:
        how = threads.How[self.tokens.name().upper()]
        self.tokens.expect("(")
        variable = self.tokens.name()
        self.tokens.expect(",")
        extent = self.tokens.integer()
        self.tokens.expect(")")
        return st.Axis(variable, extent, how)

    def _list(self, form: FieldForm) -> tuple[Any, ...]:
        self.tokens.expect("[")
        if form.kind is Kind.VALUES:
            return tuple(self.separated("]"))
        read = {Kind.WORDS: self.tokens.word, Kind.INTS: self.tokens.integer, Kind.INDICES: self.index}[form.kind]
        elements: list[Any] = []
        while not self.tokens.take("]"):
            elements.append(read())
            if not self.tokens.is_next("]"):
                self.tokens.expect(",")
        return tuple(elements)
