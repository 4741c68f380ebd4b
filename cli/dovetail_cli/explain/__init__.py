"""`dovetail explain` and `dovetail move plan`: why something waits, and what would help.

reads      the reads of an explanation, the only I/O of it
render     an explanation as text and as a record. Pure
command    the options of `dovetail explain`
move       the options of `dovetail move plan`
move_plan  the plan that it prints
"""
