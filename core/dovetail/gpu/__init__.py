"""The names of GPUs and how they are requested: models, device plugins, requests. Pure."""
