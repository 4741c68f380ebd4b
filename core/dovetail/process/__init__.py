"""What every long-running process has: health and metrics, a graceful end, guarded loops."""
