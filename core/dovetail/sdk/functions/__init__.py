"""Functions that run as jobs: what is sent, what runs it there, and what comes back.

packing      a function and its arguments as bytes
runner       the program that calls it in the job; it needs nothing but Python
outcomes     what came back: a value, or why there is none
travel       the way there and back: files on one's own machine, the job's manifest and log on a cluster
"""
