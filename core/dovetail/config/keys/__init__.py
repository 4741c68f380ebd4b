"""The keys of `gpu_config.yaml` by subject, with their bounds: one class for each, of which `Settings` consists.

devices    vendors, models, bad devices
reports    the reports of nodes
placement  preferred nodes and devices
sharing    shared devices and their tenants
queue      the queue and its jobs
records    history, notifications, logs
"""
