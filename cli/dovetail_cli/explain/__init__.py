"""`dovetail explain`: why something waits, or why it is where it is.

reads     the reads, the only I/O here
render    an explanation as text and as a record. Pure
command   the options
"""
