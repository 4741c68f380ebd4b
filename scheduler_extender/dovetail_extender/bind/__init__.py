"""Checks again, promises the devices, and binds with one write."""
