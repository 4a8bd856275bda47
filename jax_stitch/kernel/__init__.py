"""The kernel language: what one kernel does, as data that can be printed, checked and run."""
