"""What is kept on disk between processes: entries that are whole, the user's own, and within a limit of size.

Knows nothing of what it keeps: bytes by kind ("kernels", "programs", "devices") and name.
"""

from jax_stitch.util.store.entries import DAMAGED, key, read, read_or_build, remove, set_aside, write
from jax_stitch.util.store.eviction import LIMIT_VARIABLE, limit
from jax_stitch.util.store.listing import Contents, clear, contents
from jax_stitch.util.store.location import FOLDER_VARIABLE, LIBRARY, folder
from jax_stitch.util.store.private import NotPrivate, can_hold_secrets, check

__all__ = [
    "DAMAGED",
    "FOLDER_VARIABLE",
    "LIBRARY",
    "LIMIT_VARIABLE",
    "Contents",
    "NotPrivate",
    "can_hold_secrets",
    "check",
    "clear",
    "contents",
    "folder",
    "key",
    "limit",
    "read",
    "read_or_build",
    "remove",
    "set_aside",
    "write",
]
