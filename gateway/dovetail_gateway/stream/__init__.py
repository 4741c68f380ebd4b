"""The stream of changes: encoded once for each set of visible namespaces, and sent to all who have that set."""
