"""The queue's input from API objects: candidates, ends of runs, usage, victims. Pure.

The operator computes each entry of its caches with these functions. `dovetail.query` computes the same from objects
that it is given, so `gbatch --dry-run` and `dovetail explain` predict what the operator does.
"""
