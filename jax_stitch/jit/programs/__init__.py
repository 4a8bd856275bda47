"""A stitched program as a value: what it is, what it depends on, how it is kept on disk, or why there is none."""
