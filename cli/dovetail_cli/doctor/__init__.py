"""`dovetail doctor`: what is wrong with an installation or a node, and how to fix it.

host           checks of a node's own files
diagnosis      runs the reads (`dovetail.kube.queries.picture`) and the checks (`dovetail.query.doctor`)
findings       the findings, their order and how they are printed. Pure
command        the options
"""
