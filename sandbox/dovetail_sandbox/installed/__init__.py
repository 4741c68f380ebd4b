"""What a sandbox runs of Dovetail's chart and of its neighbours, as local processes."""
