"""The scheduling loop: cycles over waiting jobs, estimates, and the use of quotas.

loop                    runs cycles and estimates
cycle                   one cycle: inputs and verdicts
cycle_caches            what cycles cache for each other
preemption_candidates   which jobs may be preempted, and their notices
quota_status            writes the use of quotas
"""
