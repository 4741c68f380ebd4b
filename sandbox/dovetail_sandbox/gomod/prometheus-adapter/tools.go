//go:build tools

// Package tools pins prometheus-adapter and every module that it needs.
package tools

import (
	_ "sigs.k8s.io/prometheus-adapter/cmd/adapter"
)
