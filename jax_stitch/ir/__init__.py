"""What all levels of the compiler are written in: passes, index expressions, elementwise operations."""
