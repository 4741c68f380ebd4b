"""Import paths of an earlier scheduler, served by `dovetail.sdk`."""
