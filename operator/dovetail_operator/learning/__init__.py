"""What the operator learns of jobs, pure and in memory: the utilization that they reach, and the mix that they make."""
