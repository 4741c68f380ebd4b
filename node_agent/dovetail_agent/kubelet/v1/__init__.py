"""Wire formats of kubelet's gRPC APIs: `.proto` files and the code generated from them.

Data only. They cover PodResources (who holds which devices), plugin registration, and the node service of a volume
driver (CSI).
"""
