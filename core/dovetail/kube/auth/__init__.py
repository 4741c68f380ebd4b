"""Which API server to talk to, and with which credentials: the only place that reads kubeconfigs and tokens.

What a file holds (clusters, contexts, certificates, tokens) is read here, as kubectl reads it. A user who must log in
(exec plugin, OIDC) goes to the official `kubernetes` package, which is imported for that user alone
(docs/decisions/0012-client-of-our-own.md).
"""
