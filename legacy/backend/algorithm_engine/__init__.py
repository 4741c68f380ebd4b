"""Import paths of an earlier training engine, served by `dovetail.sdk`."""
