"""Why something is where it is, or waits: `dovetail explain`.

subjects   a pod, a job or a request: what it asks, and how far it is. Pure
telling    a subject and the cluster's picture into an explanation. Pure
showing    an explanation as text and as a record. Pure
looking    the only part that talks to the cluster
command    the options
"""
