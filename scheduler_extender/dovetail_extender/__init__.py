"""The scheduler extender: answers kube-scheduler, and is the only writer of device allocations."""
