"""The local node: a stand-in for kubelet that runs the pods of one user's GPUJobs as processes of this machine."""
