"""The placement engine: what fits where, on which devices, and how well. Pure: no I/O, no clock of its own.

claims     what is promised: values
refusals   why a node does not fit: a closed set, with numbers
ledger     the one mutable state: columns over nodes x devices, and the claims on them
fit        check(...) never mutates: devices for a node, or a refusal
devices    which devices of a node: the best connected, and the best by their values
tidy       the fragmentation term, and best fit, its plain form
mirror     the ledger's free capacity as the fragmentation mathematics sees it
priced     a priced term kept row by row for one ask
fragments  PH or FGD live, on a mix learned from arrivals
experience what the pods that are here teach the term
score      how well a node that fits would do, by policy
shapes     judgements that are kept for each shape of ask
capacity   how many workers an empty cluster could ever run together
plan       workers of one job on a ledger, or the shortage in one sentence
"""
