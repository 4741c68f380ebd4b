"""Room that is held before a bind: planned workers, nominations, reservations. Pure."""
