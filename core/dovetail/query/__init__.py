"""Answers about a cluster, computed from objects that were read: values in, values out. Pure.

Commands, gateway and console ask here and render what they get. `dovetail.kube.cluster_reads` reads the objects.
"""
