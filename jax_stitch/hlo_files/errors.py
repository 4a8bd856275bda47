"""What is raised for files that cannot be used."""

from __future__ import annotations

from jax_stitch.util.user_errors import UserError


class HloFileError(UserError, ValueError):
    """A file or text of HLO that cannot be read, planned or run. The message says where, what, and what to do, in at
    most three lines."""
