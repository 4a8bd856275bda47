"""Child processes that work for this one, behind a pair of pipes: XLA's GPU compiler without a GPU, and the planner
when nobody waits for it."""

from jax_stitch.util.child.messages import decode, encode
from jax_stitch.util.child.process import Child, ChildDied, ChildFailed, Keeper, Message, serve, tell_parent

__all__ = ["Child", "ChildDied", "ChildFailed", "Keeper", "Message", "decode", "encode", "serve", "tell_parent"]
