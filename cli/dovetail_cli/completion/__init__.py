"""Completion by the shell: what a program offers for a word that is not finished.

programs  the commands, as typer completes them
values    jobs, nodes and namespaces of the cluster, for the options that take them; kept for some seconds
"""
