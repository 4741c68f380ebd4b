"""Decides stage, status and actions of a job from one observation. Pure.

reconcile    the entry: an observation in, status and actions out
stages       the stage of a job
running      the stage while the batch Job runs
finished     the stage once the batch Job has ended
kueue        the stage of jobs that Kueue admits
preemption   notice, suspension and requeue
moves        the room that is held elsewhere for a job that restarts there
status       the status in a stage: times, places, figures
conditions   the conditions of the status
"""
