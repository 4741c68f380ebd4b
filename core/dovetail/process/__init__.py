"""What processes have in common: health and metrics, a graceful end and guarded loops, and the options of hooks."""
