"""The informers that keep the ledger current, their handlers, and the wake-up of unschedulable pods."""
