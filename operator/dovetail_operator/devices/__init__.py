"""What is wrong with the devices that jobs hold: faults, idleness, overuse. Pure."""
