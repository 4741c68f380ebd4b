"""The manifests of what the operator creates for a job. Pure.

batch_job           the batch Job
planned_template    the plan in a pod template
rendezvous          the headless Service and each framework's variables
preemption_notice   the file that announces a preemption in a pod
"""
