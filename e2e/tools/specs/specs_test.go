// Package specs is Kubernetes' own end-to-end suite without the parts that need a cloud, real storage or real
// containers: Kubernetes' test/e2e/e2e_test.go with fewer imports.
package specs

import (
	"context"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	conformance "k8s.io/kubernetes/test/conformance/testdata"
	"k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e/feature"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	"k8s.io/kubernetes/test/fixtures"
	_ "k8s.io/kubernetes/test/utils/format"

	// The specs.
	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/architecture"
	_ "k8s.io/kubernetes/test/e2e/auth"
	_ "k8s.io/kubernetes/test/e2e/common"
	_ "k8s.io/kubernetes/test/e2e/instrumentation"
	_ "k8s.io/kubernetes/test/e2e/kubectl"
	_ "k8s.io/kubernetes/test/e2e/network"
	_ "k8s.io/kubernetes/test/e2e/node"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
)

var specTimeout = flag.Duration("spec-timeout", 0, "Longest that one spec may take; 0 leaves that to the spec. Specs that take no context do not heed it.")

// TestMain reads the framework's flags before any spec runs.
func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	if *specTimeout > 0 {
		// Only now, though the specs' packages are initialized already: ginkgo builds the tree of specs later.
		ginkgo.AddTreeConstructionNodeArgsTransformer(limitSpecs)
	}
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	testfiles.AddFileSource(conformance.GetConformanceTestdataFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

// TestE2E hands over to ginkgo, which has the specs.
func TestE2E(t *testing.T) {
	e2e.RunE2ETests(t)
}

// limitSpecs gives each spec that can be interrupted, and has no limit of its own, the one of --spec-timeout. What needs
// containers that really run waits for them for five minutes and more.
func limitSpecs(node types.NodeType, _ ginkgo.Offset, text string, args []any) (string, []any, []error) {
	if node != types.NodeTypeIt {
		return text, args, nil
	}
	interruptible := false
	for _, arg := range args {
		switch arg.(type) {
		case ginkgo.SpecTimeout, ginkgo.NodeTimeout:
			return text, args, nil
		}
		interruptible = interruptible || takesContext(reflect.TypeOf(arg))
	}
	if interruptible {
		args = append(args, ginkgo.SpecTimeout(*specTimeout))
	}
	return text, args, nil
}

func takesContext(function reflect.Type) bool {
	if function == nil || function.Kind() != reflect.Func || function.NumIn() != 1 {
		return false
	}
	argument := function.In(0)
	return argument == reflect.TypeFor[context.Context]() || argument == reflect.TypeFor[ginkgo.SpecContext]()
}
