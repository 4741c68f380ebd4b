"""The tree of GPUQuotas: guarantees, what is lent and borrowed, and whose turn it is. Pure.

The rules, and where they come from:

- A quota's use counts for all quotas above it. A job is within the guarantee of the nearest quota above it whose
  guarantee still covers it. Below that quota the job borrows from relatives, beyond every guarantee from the cluster.
  Kueue's cohorts borrow by the same sums; here each quota of a path has a guarantee, and the distance counts.
- Whose turn it is follows dominant resource fairness (Ghodsi et al., Dominant Resource Fairness, NSDI 2011), level by
  level from the root: the child whose dominant share beyond its guarantee, and of recent use, is lowest for its weight.
- A quota below its guarantee may end jobs of those that are above theirs, and only as far as they stay at or above it.
  KAI-Scheduler's reclaim compares with fair shares that it computes for each queue; here guarantees alone count.
  A job that was ended therefore never ends another at the same level: its quota is at its guarantee without it.
"""
