"""What is raised for a schedule that a user asks for and cannot have."""

from jax_stitch.util.user_errors import UserError


class TemplateError(UserError, ValueError):
    """A template that cannot be read, or that no schedule of the part matches. The message says what exists."""
