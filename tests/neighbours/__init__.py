"""Programs that once went wrong, and programs like them: other ranks, axes, sizes, types and orders."""
