"""Why a pod, a job or a request goes where it goes, or nowhere, and what would help. Pure.

A view of the cluster in, an `Answer` out. It asks the engine and decides nothing itself.

question     the request in question, and the cluster
answer       each node's answer and the summary: values
nodes        asks every node, and summarizes the answers
remedies     what would help, from the modules below, in the order in which users read it
departures   claims whose end would make room
repairs      cordons, bad devices and foreign processes in the way
relaxations  smaller requests that fit
what_if      trials on copies of the ledger, for the modules above
"""
