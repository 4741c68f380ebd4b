"""The only place that talks to the API server: connection, typed requests, and lists that follow it by watching.

connection  which API server, and as whom: kubeconfig, in-cluster, logins
client      one request at a time, typed by a msgspec struct; transport is the HTTP below it
reflector   a list kept true by a watch
objects     the fields of built-in objects that Dovetail reads; quantity reads their amounts
lease       who acts: a Lease that one holds at a time
resources   where each kind lives in the API
errors      what can go wrong, as a tree
"""
