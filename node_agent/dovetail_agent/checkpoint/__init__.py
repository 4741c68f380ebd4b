"""Suspends processes to host memory with CUDA's checkpoint API."""
