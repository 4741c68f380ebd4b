"""Reasons: one table of codes and of the sentences that state them, as templates with named parameters. Data only.

clause     one row of the table, and the messages that it renders
codes      the reasons: who sets each, and what resolves it
catalog    all rows by their codes
capacity   why workers do not fit
nodes      why a node or a GPU takes no new work
refusals   why a node refuses a pod or a worker
queue      limits, order, preemption and growing pools
start      what else keeps a job from starting
arrays     what arrays say of their tasks
end        how jobs and attempts end
conditions the conditions of jobs, and how one is built
events     events on jobs and other objects
quotas     what is wrong in a tree of GPUQuotas
explain    the summaries of explanations, and their notes
moves      what moves would do for a waiting job, and why there are none
remedies   what would make a job fit
problems   why the gateway refuses a request
"""
