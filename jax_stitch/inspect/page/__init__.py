"""A fusion plan as one HTML page that needs nothing else: no network, no file beside it.

Its text is of other people's programs: all of that is packed, as data, where no browser takes it for markup, and the
script that unpacks it writes it as text only. A content security policy allows this script alone, by its hash.
"""

from jax_stitch.inspect.page.html import page

__all__ = ["page"]
