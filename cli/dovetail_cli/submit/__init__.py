"""From the words of `gbatch` and its script to a GPUJob."""
