//go:build tools

// Package tools pins the workflow controller of Argo and every module that it needs.
package tools

import (
	_ "github.com/argoproj/argo-workflows/v3/cmd/workflow-controller"
)
