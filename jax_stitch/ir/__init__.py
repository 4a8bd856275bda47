"""Building blocks of all levels of the compiler: passes, index expressions, elementwise operations."""
