"""A control plane with simulated GPUs, and a mix of jobs on it: `dovetail demo`.

mix       the jobs: classes of a published trace by their frequency
board     who holds which device, for the live view and the last tables: pure
command   the options, and what happens in which order
"""
