"""API objects into the queue's input: candidates, ends of runs, use of limits, preemption candidates. Pure.

The one copy: the operator computes each entry of its caches with these functions, and `dovetail.query` computes the
same from objects that were read once, so `gbatch --dry-run` and `dovetail explain` foretell what the operator does.
"""
