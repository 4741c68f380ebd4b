"""Kubelet's PodResources API as it goes over the wire: `podresources.proto`, and what protoc makes of it. Data only."""
