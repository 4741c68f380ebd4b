"""What the owner of a pod or job chooses beyond its request: how it is written and read, and what is allowed."""
