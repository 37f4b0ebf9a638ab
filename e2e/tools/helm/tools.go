//go:build tools

// Package tools names the commands that the end-to-end tests build, so that go.mod keeps them.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
	_ "helm.sh/helm/v4/cmd/helm"
)
