"""The node agent: publishes what a node's cards are and do. The only writer of GPUNode.status."""
