"""What users choose: modes, planners, strictness, autotuning; from arguments and environment variables."""
