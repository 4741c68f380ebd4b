"""What a GPU is called and how it is requested: models, device plugins, requests. Pure."""
