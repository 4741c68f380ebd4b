"""The scheduler extender: answers kube-scheduler, and is the only writer of device allocations.

wire         what kube-scheduler sends and reads, field for field
pods         what a pod that is being scheduled asks, and which container its devices go to
decisions    filter and prioritize over the ledger
nominations  room for pods whose victims are leaving
preempting   preempt: whose leaving makes room, chosen by device
binding      bind: recheck, promise, one write
settling     binds that the cache does not show yet
waiting      pods that were refused, and which of them would fit by now
waking       the wake-up of these
watching     the picture of the cluster, kept true by watching
service      the parts put together over one client
metrics      what it counts
app          the HTTP face
main         the command line
"""
