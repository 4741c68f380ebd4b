"""What every long-running process has: health and metrics endpoints, a graceful end, guarded loops."""
