"""`dovetail doctor`: what is wrong with an installation or a node, and how to fix it.

reads          what the doctor reads of a cluster
host           checks of a node's own files
diagnosis      runs the reads and the checks of `dovetail.query.doctor`
findings       the findings, their order and how they are printed. Pure
command        the options
"""
