"""What devices, namespaces and jobs did over time, and who used how much of them.

columns   what is kept of a subject, and in how many bytes
bounds    how many subjects of one owner are kept. Pure
rings     samples of many subjects by time, the past in coarser steps. Pure
readings  what the cluster does now, from its nodes and jobs. Pure
curves    the samples of one job, from its start to its end. Pure
marks     when jobs started, moved, were preempted and ended. Pure
usage     GPU time by day, namespace, project, user and model. Pure
batches   what one sample adds to the database
schema    the tables
store     the database, in which all of these outlive the process; loaded for a `samples_url` alone
sampler   takes a sample every 30 s
series    the curves of a subject, from what is kept. Pure
sources   where the curves of devices come from: one interface, and the rings behind it
prometheus  the same interface in front of a Prometheus; used where the command line names one
options   which Prometheus that is
"""
