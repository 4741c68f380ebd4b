"""A control plane with simulated GPUs, and a mix of jobs on it: `dovetail demo`.

workload   the jobs: classes of a published trace by their frequency
board      the holders of each device, for the live view and the last tables. Pure
live_view  submits the jobs and shows their progress
command    the options, and the order of the steps
"""
