"""Optional: the volumes that give pods MPS's pipes and memory. Programs of their own, which the agent never loads."""
