"""Parsing of options and words, and printing of tables. No access to the cluster."""
