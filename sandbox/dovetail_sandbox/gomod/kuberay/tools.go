//go:build tools

// Package tools names the programs that the sandbox builds from this module, so that go.sum covers what they import.
package tools

import (
	_ "github.com/ray-project/kuberay/ray-operator"
)
