"""The informers that keep the ledger current, and the wake-up of unschedulable pods."""
