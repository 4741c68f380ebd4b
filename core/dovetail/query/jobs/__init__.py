"""Answers about GPUJobs: lists, one job's details, records of ended jobs. Pure.

`gqueue` starts in a fraction of a second, so these modules import neither NumPy nor the engine at the top.
"""
