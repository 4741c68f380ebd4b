"""The experiment: a trace in, policies, curves of allocation against load out.

Pure, over NumPy columns.

trace         nodes, pods and arrivals from the text of files; errors in them as one sentence
arrivals      arrivals drawn from a trace's pods, optionally with models and lifetimes
experiment    one policy places the arrivals, one after the other
moves         pods that move so that a refused one fits
curve         allocation, fragmentation and refusals at a load, from an experiment's outcome
parallel      several policies at once, each in its own process
snapshot      a live cluster at one moment, as a document
scenario      a snapshot as the start of an experiment
planned_jobs  the pods of a trace as GPUJobs, by the queue's own code and the extender's
queue_replay  a queue over time, with real run times
fleet         the queues of several clusters over time
dispatch      which clusters of a fleet get a job
policies      every policy by name; the baselines are here, FGD and PH in `dovetail.fragmentation`
plot          the curves as a picture
"""
