"""`gbatch`: its options and script become a GPUJob."""
