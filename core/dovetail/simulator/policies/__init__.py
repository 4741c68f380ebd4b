"""The policies by name. A new one is one file here or in `dovetail.fragmentation`, and one line in the table."""
