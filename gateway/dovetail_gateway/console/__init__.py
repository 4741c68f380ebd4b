"""The live console: its files, and how a browser signs in. Its data come from v3 alone."""
