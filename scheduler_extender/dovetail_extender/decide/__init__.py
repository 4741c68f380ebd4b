"""Filter, prioritize and preempt: what kube-scheduler asks. Pure."""
