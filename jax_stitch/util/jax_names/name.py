"""An entry of the table of names, and what can be lost where one is missing."""

from __future__ import annotations

from msgspec import Struct

from jax_stitch.util.jax_names.forms import Form, IsModule

EVERYTHING = "nothing can be stitched"
HLO_FILES = "HLO files cannot be read"
DESCRIBED = "there are no plans for GPUs that are not attached"
APART = "some loops that are left to XLA are slower"
JET = "jet takes no stitched function"


class Name(Struct, frozen=True):
    """A name of JAX's as we use it."""

    name: str
    """Ours, by which ``jax_names`` has it."""
    home: str
    """The module that it is in."""
    attribute: str
    """Its name there; empty for the module itself."""
    what: str
    form: Form
    lost: str = EVERYTHING
    """The features that are lost without it."""
    spared: bool = False
    """True if a missing name is imported as None, which its users check for; else importing it raises."""

    @property
    def full_name(self) -> str:
        """Return the name that JAX has for it."""
        return f"{self.home}.{self.attribute}" if self.attribute else self.home


def module_name(name: str, home: str, what: str, lost: str = EVERYTHING) -> Name:
    """Return the entry of a module; the names that are used of it have entries of their own."""
    return Name(name, home, "", what, IsModule(), lost)
