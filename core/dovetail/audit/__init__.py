"""Proves that no device is promised beyond its capacity, and that none is lost.

Imports no engine, so that the proof shares no code with what it checks.
"""
