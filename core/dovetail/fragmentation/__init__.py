"""The cost of a placement for a cluster's future: fragmentation, priced headroom, policies.

Mathematics over columns only: no trace, file, clock or network, so that the live engine and the simulator share the
code. docs/placement.md explains it with figures.

pod_shapes        what a pod requests, and where it could go: values capacity          the free capacity of all nodes,
the one mutable state, with a log of touched nodes node_classes      groups of nodes that are equal in all that
placement looks at workload_mix      the classes of pods that are expected, and how often each arrives gradient
the fragmentation of Weng et al. (ATC'23), kept per node, and its change by a placement cutting_stock     the worth of a
piece of a device for shares: Gilmore-Gomory dual values headroom          how many more pods of each class a node could
take prices            the price of one pod of headroom now, from scarcity and rare large shapes placement_delta   what
a pod would take of nodes, on any devices: values device_sums       sums over a node's devices, and their change by a
placement appraisal         the value of placements for the live engine, which decides itself what fits: protocol, FGD
ph_terms          the same for PH: its terms, kept up to date policy            the protocol of policies, and the cache
that all scored policies share cache             what policies keep for each shape, within a bound on memory fgd
fragmentation gradient descent as published priced_headroom   PH, our own policy arrivals          the mix of classes,
learned from arrivals
"""
