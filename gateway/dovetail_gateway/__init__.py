"""The gateway: REST for scripts, the SDK and the console, with the rights of its callers."""
