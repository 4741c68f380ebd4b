"""Commands about jobs: list, show, change and cancel them."""
