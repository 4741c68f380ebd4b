"""`dovetail doctor`: what is wrong with an installation or a node, and how to fix it.

`looking` reads a cluster, `control_plane` and `nodes` judge what it saw (pure); `host` reads a node's own files;
`findings` is what comes of it.
"""
