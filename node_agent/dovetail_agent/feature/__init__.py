"""The protocol of a feature (what runs next to the reports), and its runner."""
