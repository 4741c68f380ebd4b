"""What a placement costs a cluster's future: fragmentation, priced headroom, and the policies made of them.

Mathematics over columns and nothing else: no trace, file, clock or network is known here, so that the live engine and
the simulator use the same code. docs/placement.md explains it with figures.

shapes         what a pod asks for, and where it could go: values
columns        the free capacity of all nodes, the one mutable state, with a log of touched nodes
kinds          which nodes are equal in all that placement looks at
mix            the classes of pods that are expected, and how often each comes
gradient       the fragmentation of Weng et al. (ATC'23), kept per node, and its change by a placement
cutting_stock  what a piece of a device is worth for shares: Gilmore-Gomory dual values
headroom       how many more pods of each class a node could take
prices         what one pod of headroom is worth now, from scarcity and rare big shapes
taking         what a pod would take of nodes, on whatever devices: values
device_sums    sums over a node's devices, and their change by a placement
appraisal      what that is worth, by FGD or by PH, for a caller that decides itself what fits: the live engine
priced         the terms of PH, kept up to date
policy         the protocol of policies, and the cache that all scored ones share
kept           what policies keep for each shape, within a bound on memory
fgd, ph        fragmentation gradient descent as published, and priced headroom (ours)
learning       the mix of classes learned from arrivals
tuner          the best of several policies for this cluster, found by replaying arrivals on a copy
"""
