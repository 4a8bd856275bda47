"""Small things that every stage uses and that use nothing of ours."""
