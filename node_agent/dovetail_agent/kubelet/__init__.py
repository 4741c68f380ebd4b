"""Kubelet's gRPC APIs: which pod holds which device."""
