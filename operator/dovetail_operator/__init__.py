"""The operator: reconciles GPUJobs. Pure decisions in plain modules, I/O at the edge."""
