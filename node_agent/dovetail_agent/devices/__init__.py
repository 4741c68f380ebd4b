"""Devices and their samples: one protocol, and one package or module for each vendor."""
