"""Jobs listed, shown, changed and cancelled."""
