"""Answers about a cluster, computed from objects that were read: values in, values out. Pure.

Commands, gateway and console call this package and render the results. `dovetail.kube.cluster_reads` reads the objects.
"""
