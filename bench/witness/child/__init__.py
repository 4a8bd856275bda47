"""What either edition runs."""
