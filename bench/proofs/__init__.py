"""Independent checks of the PTX that kernels become: by SentryWard where it can, and of its structure everywhere."""
