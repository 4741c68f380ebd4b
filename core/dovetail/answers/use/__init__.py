"""What is held now, and what was used over time."""
