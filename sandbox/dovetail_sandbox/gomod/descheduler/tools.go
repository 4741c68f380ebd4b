//go:build tools

// Package tools pins the descheduler and every module that it needs.
package tools

import (
	_ "sigs.k8s.io/descheduler/cmd/descheduler"
)
