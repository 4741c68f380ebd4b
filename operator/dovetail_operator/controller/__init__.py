"""The controller: handles watch events, reconciles jobs, runs actions, writes statuses.

controller       puts the parts together and runs them
informers        what is followed, and which handlers get the events
event_handlers   updates the store, and marks affected jobs and the queue
reconciler       one reconcile of one job
action_runner    runs the actions of a reconcile
status_writer    writes a status and posts its events
"""
