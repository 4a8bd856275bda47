"""Every name of JAX's that it does not promise to keep: what it is, which form it must have, what is lost without it.

All that the package uses of ``jax._src``, ``jax.interpreters``, ``jax.extend``, ``jaxlib`` and the private attributes
of JAX's objects is here. A name with a point is an attribute of a module that has an entry itself.
"""

from __future__ import annotations

from jax_stitch.util.jax_names.name import Name
from jax_stitch.util.jax_names.of_jax import OF_JAX
from jax_stitch.util.jax_names.of_jaxlib import OF_JAXLIB

NAMES: tuple[Name, ...] = (*OF_JAX, *OF_JAXLIB)
