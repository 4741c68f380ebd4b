"""The only package that talks to the API server: requests, watches, leader election.

auth                which API server, and as whom: kubeconfig, in-cluster, exec and OIDC logins
client              one request at a time, typed by a msgspec struct
transport           HTTP below the client: credentials, deadlines, retries, refusals as errors
http_session        the protocol of an HTTP session; aiohttp_session and thread_session implement it
reflector           a list that a watch keeps up to date; watch_stream decodes pages and events
unreadable_objects  the objects that could not be decoded or handled, counted and reported
json_scanner        splits JSON that is nested too deeply for msgspec
page_size           how many objects to request per page
leader_election     a Lease with one holder at a time, and its fencing token
workqueue           keys to reconcile, each once
retry               the loop that tries failed work again; retry_log logs the failures
event_recorder      Kubernetes Events, sent in the background; event_correlator counts repeats and limits floods
resource_slices     the ResourceSlices of some DRA drivers, where the cluster serves them
queries             what takes several requests: the objects that dovetail.query needs, and the history
errors              what can go wrong, as a tree
"""
