"""What takes several requests to the API server to answer: the whole cluster, optional kinds, and the history."""
