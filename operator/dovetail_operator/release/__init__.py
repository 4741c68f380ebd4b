"""What Helm runs beyond the components: the clean-up after an uninstall, and the test of a release.

Each is a program that ends. Neither decides about jobs: what does belongs into `lifecycle` and `queue`.
"""
