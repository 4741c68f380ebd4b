"""Why a pod, a job or a request waits, or where it is, and what would help. Pure."""
