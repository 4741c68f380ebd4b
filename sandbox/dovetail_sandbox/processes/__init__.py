"""Processes and ports of this machine, and the supervisor of a sandbox's programs."""
