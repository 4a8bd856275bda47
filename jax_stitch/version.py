"""The version of the package: its metadata, ``__version__`` and ``--version`` read it here."""

__version__: str = "0.1.0"
