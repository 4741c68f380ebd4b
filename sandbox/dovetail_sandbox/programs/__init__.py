"""The programs of a sandbox: which ones, and where they come from."""
