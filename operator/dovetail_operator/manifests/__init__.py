"""The objects that the operator creates, as manifests. Pure."""
