"""The local node of a sandbox: its certificates, its rights, its process, and the terminal of a job.

The node itself is a deployable.
"""
