"""The local node of a sandbox: its certificates, its rights, and its process. The node itself is a deployable."""
