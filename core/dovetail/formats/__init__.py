"""Text forms of one value: timestamps, durations, quantities.

Imports no other package of Dovetail.
"""
