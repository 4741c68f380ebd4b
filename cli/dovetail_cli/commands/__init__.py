"""One thin module for each command: its options, and the call that does the work."""
