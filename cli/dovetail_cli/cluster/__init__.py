"""The connection to the cluster, and reads of the whole cluster."""
