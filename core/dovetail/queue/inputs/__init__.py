"""The queue's input from API objects: candidates, ends of runs, usage, victims. Pure.

`entries` says what the queue sees of each job, for the operator from its caches and for `dovetail.query` from objects
that were read once, so `gbatch --dry-run` and `dovetail explain` predict what the operator does.
"""
