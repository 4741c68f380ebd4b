"""What the operator knows of the cluster, and indexes over it. No I/O."""
