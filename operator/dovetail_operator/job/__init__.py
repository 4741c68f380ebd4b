"""One GPUJob: what is observed of it, and the rules that read it. Values, pure.

observation        everything that a job's next status depends on
actions            what the operator may do about a job
plan               a job's plan, and whether it still holds
retries            which ends lead to another attempt
status_pacing      when a status change is written
footprint          what of a job is kept in memory
elastic            the workers of an elastic job
cpu_fallback       jobs that run without a GPU
liveness_warning   warns about liveness probes of time-shared jobs
"""
