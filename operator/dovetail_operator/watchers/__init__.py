"""Loops that run in parallel to the queue: idle jobs, Kueue, Services, node tenants.

build          builds the watchers of GPUJobs
idle           applies the idle policy
kueue          what Kueue says about Jobs that it has not admitted
services       recreates deleted Services of gangs
node_tenants   writes GPUNodeTenants
"""
