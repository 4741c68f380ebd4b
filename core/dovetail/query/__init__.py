"""Answers about a cluster, computed from its objects: values in, values out. Pure.

Commands, gateway and console call this package and render the results. `dovetail.kube.queries` reads the objects.
"""
