// Only the CRDs of this version are read; nothing is built.
module dovetail.dev/tests/cert-manager

go 1.26.0
