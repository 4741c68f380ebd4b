"""The placement engine: what fits where, on which devices, and how well. Pure: no I/O, no clock of its own.

claims     what is promised: values
refusals   why a node does not fit: a closed set, with numbers
ledger     the one mutable state: columns over nodes x devices, and the claims on them
fit        check(...) never mutates: devices for a node, or a refusal
score      how well a node that fits would do, by policy
plan       workers of one job on a ledger, or the shortage in one sentence
"""
