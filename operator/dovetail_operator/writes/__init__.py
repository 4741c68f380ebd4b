"""The controller's writes to the API server, each with its preconditions.

jobs              batch Jobs, and the status of GPUJobs
tasks             tasks of arrays
services          headless Services of gangs
pods              preemption notices, and the pods that are about to end in their PodDisruptionBudgets
evictions         evicts pods above their promised memory
configmaps        reads and conditionally writes a ConfigMap
job_numbers       allots short numbers
device_indexes    numbers the devices of the cluster
estimate_store    the learned factors of estimates, and the last moves of deleted jobs
unreadable_jobs   the status of GPUJobs that cannot be read
"""
