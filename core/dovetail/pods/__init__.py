"""What a pod with GPUs says, and what it must look like for it. Pure: objects in, objects out, no I/O."""
