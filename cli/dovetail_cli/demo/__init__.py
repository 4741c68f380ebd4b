"""A control plane with simulated GPUs, and a mix of jobs on it: `dovetail demo`.

workload   the jobs: classes of a published trace by their frequency
live_view  submits the jobs, shows who holds each device meanwhile and at the end
command    the options, and the order of the steps
"""
