//go:build tools

// Package specs names the commands that the specs need beside the servers, so that go.mod keeps them.
package specs

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
)
