"""Watch events in, reconciles out."""
