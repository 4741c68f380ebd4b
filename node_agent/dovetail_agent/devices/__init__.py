"""What devices are and do: one protocol, one folder or module for each vendor."""
