"""The admission webhook: completes pods that request GPUs, as the pods of GPUJobs are."""
