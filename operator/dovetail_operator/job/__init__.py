"""One GPUJob: what is observed of it, and the rules that read it. Values, pure."""
