"""The placement engine: where a pod fits, on which devices, and how well. Pure: no I/O, no clock of its own.

model     the values: asks, claims, columns, refusals
ledger    what is promised of which device; the one mutable state
filter    whether a pod fits on a node, on which devices, and why not
score     how good each node is that fits, and the cache of both answers
gang      all workers of a job together, or the shortage in one sentence
"""
