"""Simulated devices, with scenarios named after the faults that they reproduce."""
