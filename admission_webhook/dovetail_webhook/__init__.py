"""The admission webhook: any pod with our request annotation is completed as the pods of GPUJobs are."""
