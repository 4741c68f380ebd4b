// The oldest minor version that the chart accepts. Only its OpenAPI is read; nothing is built.
module dovetail.dev/tests/kubernetes-1.33

go 1.24.0
