//go:build tools

// Package tools names the command that the end-to-end tests build, so that go.mod keeps it.
package tools

import _ "github.com/derailed/k9s"
