"""What a GPUJob means beyond its schema: tasks, plan, runs, size limits and records. Pure."""
