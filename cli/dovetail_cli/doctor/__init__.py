"""`dovetail doctor`: what is wrong with an installation or a node, and how to fix it.

reads          what the doctor reads of a cluster
control_plane  checks of what the chart installs. Pure
nodes          checks of nodes with GPUs. Pure
pod_security   checks of Pod Security in namespaces with GPU pods. Pure
host           checks of a node's own files
diagnosis      runs the reads and the checks
findings       the findings, their order and how they are printed. Pure
command        the options
"""
