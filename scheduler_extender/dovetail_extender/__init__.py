"""The scheduler extender: answers kube-scheduler and alone writes device allocations.

decide      filter, prioritize and preempt over the ledger, and which refused pods to wake
holds       room that is held before a bind: planned workers, nominated pods, reservations
bind        the check, the promise and the one write; binds that the cache does not show yet
cluster     the informers that keep the ledger current, their event handlers, and the wake-up of unschedulable pods
protocol    what kube-scheduler sends and reads, field for field
server      the HTTP handlers of kube-scheduler's verbs
background  the work between requests: holds expire, binds are settled, the usual workload mix is learned
service     one extender, assembled over one client
metrics     the Prometheus metrics
main        the command line
"""
