"""The queue: waiting jobs and a ledger in, verdicts out. Pure.

No I/O, no clock, and no state between two scheduling cycles.
"""
