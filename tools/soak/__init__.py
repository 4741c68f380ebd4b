"""`make soak`: jobs of every kind on a sandbox whose programs are killed, paused, cut off and moved in time.

schedule     which disturbance comes when. Pure
guest_kinds  objects of other kinds that wait in the queue. Pure
job_kinds    the kinds of jobs, and how each may end. Pure
controllers  the controllers of other projects that these objects need
proxy        a TCP proxy that delays, drops and stalls connections
disturb      carries out the disturbances on a sandbox
load         submits the jobs, follows them and removes those that have ended
measure      memory of the programs and audits, all along
run          one soak from its start to its record
record       what a soak has seen: the record that it writes, and reads again
verdicts     whether it passed. Pure
report       the record as a page and a plot

It talks only to loopback, and ends only processes of its own sandbox.
"""
