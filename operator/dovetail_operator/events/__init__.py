"""Kubernetes Events for GPUJobs and their pods."""
