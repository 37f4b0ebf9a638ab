// The definitions of others' kinds of which the chart makes objects. Files are read, and nothing is built: no package
// is imported, so that `go mod tidy` would leave these out.
module tributary.dev/e2e/tools/definitions

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
