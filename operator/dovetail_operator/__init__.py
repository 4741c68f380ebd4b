"""The operator: reconciles GPUJobs. Pure decisions in plain modules, I/O at the edge.

main       the program: configuration, probes, leader election, kopf
handlers   what kopf calls: login, start, liveness probe, clean-up
leader     one operator acts, the others stand by
app        assembles informers, state, controller, watchers and history
metrics    the metrics for Prometheus
"""
