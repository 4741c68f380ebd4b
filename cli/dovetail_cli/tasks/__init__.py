"""What tasks of REST v2 run: the templates of `dovetail migrate` and of `gflowd up`."""
