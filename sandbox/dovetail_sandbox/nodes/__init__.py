"""Simulated nodes, and the control plane's configuration for them. Pure."""
