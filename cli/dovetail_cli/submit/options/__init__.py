"""The options of gbatch: how they are declared, and those that are one field of the spec."""
