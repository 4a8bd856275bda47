"""The part and the tensors of each block, found by halving."""

from __future__ import annotations

import re

import pytest

from jax_stitch.emit.dispatch import Call, chain


def calls(sizes: list[tuple[str, int]]) -> list[Call]:
    found, first = [], 0
    for k, (function, size) in enumerate(sizes):
        found.append(Call(function, first, first + size, (("const int*", f"a{k}"), ("const int*", "same")), ("rest",)))
        first += size
    return found


SIZES = {
    "one": [("f", 3)],
    "a table alone": [("f", 3), ("f", 1), ("f", 2)],
    "tables among others": [("f", 1), ("g", 2), ("g", 5), ("g", 1), ("f", 4), ("h", 1), ("h", 1)],
    "many": [("f", 1 + k % 3) for k in range(37)] + [("g", 2)] + [("h", 1 + k % 2) for k in range(8)],
}


@pytest.mark.parametrize("name", SIZES)
def found(calls: list[Call], block: int) -> tuple[str, int, str]:
    """The function, the block within its part, and the array that the text gives a block: read as a compiler would."""
    text = " ".join(chain(calls)).replace("{", " { ").replace("}", " } ")
    tokens = re.findall(r"if \(block < \d+\)|else\b|[{}]|[^{};\s][^{};]*;", text)
    values: dict[str, str] = {"block": str(block)}
    calls_made: list[tuple[str, int, str]] = []

    def statement(k: int, run: bool) -> int:
        if tokens[k] == "{":
            k += 1
            while tokens[k] != "}":
                k = statement(k, run)
            return k + 1
        if condition := re.fullmatch(r"if \(block < (\d+)\)", tokens[k]):
            holds = block < int(condition[1])
            k = statement(k + 1, run and holds)
            return statement(k + 1, run and not holds) if k < len(tokens) and tokens[k] == "else" else k
        if run:
            done(tokens[k].strip().rstrip(";"))
        return k + 1

    def done(text: str) -> None:
        if call := re.fullmatch(r"(\w)\((.*)\)", text):
            first, array, *_ = (part.strip() for part in call[2].split(","))
            place, _, less = first.partition(" - ")
            calls_made.append(
                (call[1], int(values[place]) - int(values.get(less, less or "0")), values.get(array, array))
            )
        elif "=" in text:
            for part in text.split(","):
                name, value = part.split("=")
                values[name.strip()] = value.strip()

    k = 0
    while k < len(tokens):
        k = statement(k, True)
    (call_made,) = calls_made
    return call_made


@pytest.mark.parametrize("name", SIZES)
def test_every_block_finds_its_own(name: str) -> None:
    """One tensor's blocks would work on the next one's."""
    made = calls(SIZES[name])
    for k, call in enumerate(made):
        for block in range(call.first, call.last):
            assert found(made, block) == (call.function, block - call.first, f"a{k}")


def test_a_hundred_tensors_take_seven_comparisons() -> None:
    """They were compared one after the other: the last block of AdamW took a hundred."""
    lines = chain(calls([("f", 2)] * 100))
    assert max(len(line) - len(line.lstrip()) for line in lines if "if (block" in line) <= 2 * (7 + 1)
    assert sum("if (block" in line for line in lines) == 99
