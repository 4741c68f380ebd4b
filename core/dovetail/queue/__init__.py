"""The queue: waiting jobs and a ledger in, verdicts out. Pure: no I/O, no clock, no state between two cycles."""
