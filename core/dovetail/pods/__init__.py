"""What a pod with GPUs requests, and what its spec must contain.

Pure: objects in, objects out.
"""
