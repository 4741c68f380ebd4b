"""The experiment: a trace in, policies, a curve of allocation against arrived load out. Pure, over NumPy columns.

trace        nodes, pods and arrivals from the text of files; faults in them as one sentence
arrivals     arrivals drawn from the pods of a trace, tied to models on request, with lifetimes on request
experiment   one policy meets the arrivals, one after the other
curve        allocation, fragmentation and refusals at a load, from what an experiment noted
snapshot     a live cluster at one moment, as a document
staging      a snapshot as the stage of an experiment
policies     every policy by name; the baselines are here, FGD and PH in `dovetail.fragmentation`
plot         the curves as a picture
"""
