"""A look at a cluster that any scheduler runs: what GPU pods wait for, who holds what, what is lost. Pure."""
