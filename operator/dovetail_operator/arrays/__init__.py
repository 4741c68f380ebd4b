"""Array jobs and sweeps: their tasks, status and updates. Pure.

array_status     status and actions of the array
expected_tasks   tasks that other jobs name before they exist
task_index       which GPUJobs are tasks of which array
task_manifest    the manifests of tasks
task_updates     changes to unfinished tasks
"""
