"""Kubernetes Events for GPUJobs: which status changes cause one, and their recorder."""
