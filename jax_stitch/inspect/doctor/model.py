"""The findings of an examination, as values and as text."""

from __future__ import annotations

from msgspec import Struct


class Finding(Struct, frozen=True):
    """One line of a section."""

    name: str
    value: str
    advice: str = ""
    """The advice to the user; empty where nothing needs to be done."""
    stops_kernels: bool = False
    """True if no kernel can run on the device in use until the user has followed the advice."""


class Section(Struct, frozen=True):
    """Findings about one thing."""

    title: str
    findings: tuple[Finding, ...]


class Examination(Struct, frozen=True):
    """All sections."""

    sections: tuple[Section, ...]

    @property
    def kernels_can_run(self) -> bool:
        """Return whether nothing keeps stitched kernels from running on the device in use."""
        return not any(finding.stops_kernels for section in self.sections for finding in section.findings)

    def __str__(self) -> str:
        width = max(len(finding.name) for section in self.sections for finding in section.findings)
        lines: list[str] = []
        for section in self.sections:
            lines.append(section.title)
            for finding in section.findings:
                lines.append(f"  {finding.name:{width}}  {finding.value}".rstrip())
                lines += [f"  {'':{width}}  -> {line}" for line in finding.advice.splitlines()]
            lines.append("")
        verdict = "Stitched kernels can run here."
        if not self.kernels_can_run:
            verdict = "No stitched kernels can run here: functions run as plain jax.jit. Do what the arrows (->) say."
        return "\n".join([*lines, verdict])
