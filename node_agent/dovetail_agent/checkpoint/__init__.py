"""Suspends processes to host memory by CUDA's checkpoint API."""
