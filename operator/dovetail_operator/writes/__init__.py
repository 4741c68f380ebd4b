"""The only package that writes to the API server."""
