"""Which API server to talk to, and as whom: kubeconfig, in-cluster credentials, logins."""
