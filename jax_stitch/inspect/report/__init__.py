"""What users look at: plans, their differences, and both programs side by side."""
