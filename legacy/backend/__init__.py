"""Import paths of an earlier training service, served by `dovetail.sdk`."""
