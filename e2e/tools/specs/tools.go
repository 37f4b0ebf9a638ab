//go:build tools

// Package specs names the command that the specs need beside the servers, so that go.mod keeps it.
package specs

import _ "k8s.io/kubernetes/cmd/kube-scheduler"
