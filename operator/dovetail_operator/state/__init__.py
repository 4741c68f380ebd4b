"""What the operator knows of the cluster: observed objects, decisions, indexes. No I/O.

state              everything about one job: the store and the decisions together
store              observed objects; only watch events change it
decisions          decisions that are not written yet, with one writer per column
pending_writes     our writes that the watch has not delivered yet
requests           what each worker requests
usage              what every job takes of the quotas
candidate_cache    candidates, from cycle to cycle
running            running jobs, from cycle to cycle
generation_cache   entries that live from one cycle to the next
job_mix            the mix of what is submitted, which prices plans
dependency_index   which job waits for which
pods               pods by owner
refused_pods       pods that the Job controller cannot create
failing_jobs       jobs on which our own code fails
due_records        jobs with a record to write
"""
