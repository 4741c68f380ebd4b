"""One GPUJob: what is observed of it, and the rules that read it. Values, pure.

observation        everything that a job's next status depends on
actions            what the operator may do about a job
plan               a job's plan in its status
plan_doubts        whether a plan still holds
earlier_run        waits for the pods of an earlier run
retries            which ends lead to another attempt
missed_deadline    failures that are the time limit under another reason
failure_policy     the batch Job's podFailurePolicy
attempts           the records of ended attempts
run_time           the run time over all runs
status_pacing      when a status change is written
footprint          what of a job is kept in memory
elastic            the workers of an elastic job
cpu_fallback       jobs that run without a GPU
liveness_warning   warns about liveness probes of time-shared jobs
"""
