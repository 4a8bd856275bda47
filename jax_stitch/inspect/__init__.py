"""Output for people: plans, pages, reports, explanations, the command line."""
