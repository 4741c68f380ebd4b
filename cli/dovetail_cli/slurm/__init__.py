"""Slurm's programs `sbatch`, `squeue`, `scancel` and `sinfo`, in our commands' words.

names        the names, installed in a folder and removed from it
translation  a command line of Slurm's in our words; pure
programs     what runs when one of the names is typed
"""
