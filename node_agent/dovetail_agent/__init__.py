"""The node agent: publishes a node's devices and their load.

The only writer of `GPUNode.status`.
"""
