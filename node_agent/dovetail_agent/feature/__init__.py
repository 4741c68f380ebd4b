"""The protocol of a feature, which runs next to the reports, and its runner."""
