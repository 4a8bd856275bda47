"""From a kernel's text to one JAX operation: compilers, launchers, and the headers that the text includes."""
