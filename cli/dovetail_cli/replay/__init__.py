"""A recorded workload, submitted again: `dovetail replay`.

jobs      a pod of the trace as a GPUJob
campaign  submit jobs, and follow them to their end
tally     how things stand, from what was seen: pure
report    the summary at the end: pure
live      the progress, on a terminal and in a log
command   the options
"""
