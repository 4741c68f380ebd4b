"""What Helm runs beyond the components: the clean-up after an uninstall, and the test of a release.

Each is a program that ends, in the operator's image. Neither decides about jobs.
"""
