"""Requests and answers without I/O: what a call sends, and what its answer means. Pure."""
