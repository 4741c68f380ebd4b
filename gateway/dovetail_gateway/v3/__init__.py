"""REST v3, `/api/v3`: jobs, nodes, quotas, answers about the queue, and the stream of changes."""
