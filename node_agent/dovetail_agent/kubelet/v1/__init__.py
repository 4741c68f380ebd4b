"""Kubelet's gRPC APIs as they go over the wire: the `.proto` files, and what protoc makes of them. Data only.

PodResources (who holds which devices), plugin registration, and what a volume driver's node service is asked (CSI).
"""
