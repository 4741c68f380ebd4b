"""`dovetail replay`: submits a recorded workload again.

jobs            converts a pod of the trace to a GPUJob
runner          one replay, from its files to its report
campaign        submits jobs, and follows them to their end
tally           the progress, from the observed jobs. Pure
device_holders  the holders of each device, from the jobs' statuses. Pure
report          the summary at the end. Pure
progress        shows the progress, on a terminal and in a log
command         the options
"""
