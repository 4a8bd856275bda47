"""What people see: plans, pages, reports, explanations, the command line."""
