"""Requests, memory and places under the names of a scheduler that scripts already use."""
