"""What is raised for a schedule that a user asks for and cannot have."""


class TemplateError(ValueError):
    """A template that cannot be read, or that no schedule of the part matches. The message says what exists."""
