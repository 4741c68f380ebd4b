"""`dovetail-certificates`: the one writer of the release's certificates: the webhook's, and an attached extender's.

A separate process, because it alone may read and write Secrets. The webhook is reachable from outside its namespace
and has no rights at all. `dovetail-trust` runs only while Helm does: it makes the webhook's CA and publishes it, which
takes rights that no standing account should have. `pairs` makes and reads certificates, `signing` and
`publication` decide, `keeper`, `extender`, `trust` and `hook` read and write through the API server.
"""
