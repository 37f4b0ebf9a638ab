// Command tributary-e2e-clients drives client-go and controller-runtime for the end-to-end tests.
//
//	tributary-e2e-clients informer           SharedInformers on pods and configmaps, or on other core resources
//	tributary-e2e-clients controller-runtime the same through a controller-runtime cache
//	tributary-e2e-clients manager            the same through the reconcilers of a controller-runtime manager
//	tributary-e2e-clients typed              the writes of a generated client, which sends protobuf
//	tributary-e2e-clients retrywatch         a RetryWatcher on configmaps
//	tributary-e2e-clients published          a manager for each cluster of the kubeconfig Secrets in a namespace
//	tributary-e2e-clients oracle --kind KIND an informer, retrywatch or controller-runtime that checks each event
//
// Each prints one JSON object per line. The watching ones first print {"event":"synced"} and then obey lines on
// standard input: "dump" prints what they hold, "exit" or the end of the input ends them.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// settings are the flags that every subcommand takes.
type settings struct {
	kubeconfig string
	context    string
	namespace  string
	version    string
	cluster    string
	kind       string
	resources  string
	secrets    string
	gateway    string
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("name a subcommand: informer, controller-runtime, manager, typed, retrywatch, published or oracle"))
	}
	var given settings
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&given.kubeconfig, "kubeconfig", "", "path of the kubeconfig")
	flags.StringVar(&given.context, "context", "", "context to use; the current one if empty")
	flags.StringVar(&given.namespace, "namespace", "", "namespace; all if empty")
	flags.StringVar(&given.version, "resource-version", "", "resourceVersion that retrywatch starts from")
	flags.StringVar(&given.cluster, "cluster", "", "cluster that typed creates in, by the annotation tributary.dev/cluster")
	flags.StringVar(&given.resources, "resources", "pods,configmaps", "core resources that informer follows")
	flags.StringVar(&given.secrets, "secrets", "", "namespace of the kubeconfig Secrets that published reads")
	flags.StringVar(&given.gateway, "gateway", "", "cluster of cluster-gateway, below whose proxy all requests go")
	flags.StringVar(&given.kind, "kind", "informer", "client of the oracle: informer, retrywatch or controller-runtime")
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	config, err := restConfig(given)
	if err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch os.Args[1] {
	case "informer":
		err = runInformers(ctx, config, given)
	case "controller-runtime":
		err = runControllerRuntime(ctx, config, given)
	case "manager":
		err = runManager(ctx, config, given)
	case "typed":
		err = runTyped(ctx, config, given)
	case "retrywatch":
		err = runRetryWatch(ctx, config, given)
	case "published":
		err = runPublished(ctx, config, given)
	case "oracle":
		err = runOracle(ctx, config, given)
	default:
		err = fmt.Errorf("unknown subcommand %q", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func restConfig(given settings) (*rest.Config, error) {
	loader := &clientcmd.ClientConfigLoadingRules{ExplicitPath: given.kubeconfig}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: given.context}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loader, overrides).ClientConfig()
	if err != nil {
		return nil, err
	}
	// The client's own rate limit would make a test slow, not the server.
	config.QPS, config.Burst = 500, 1000
	if given.gateway != "" {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return gatewayTransport{cluster: given.gateway, next: next}
		})
	}
	return config, nil
}

// gatewayTransport prepends the path of a cluster's proxy to each request, as the clients of cluster-gateway do
// (pkg/apis/cluster/transport in oam-dev/cluster-gateway).
type gatewayTransport struct {
	cluster string
	next    http.RoundTripper
}

func (transport gatewayTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	proxy := "/apis/cluster.core.oam.dev/v1alpha1/clustergateways/" + transport.cluster + "/proxy"
	request.URL.Path, request.URL.RawPath = proxy+request.URL.Path, ""
	return transport.next.RoundTrip(request)
}

var printing sync.Mutex

// say prints one line of JSON.
func say(value any) {
	printing.Lock()
	defer printing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// obey answers "dump" lines with what dump returns, until "exit", the end of the input or of ctx.
func obey(ctx context.Context, dump func() any) error {
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(os.Stdin)
		for scanner.Scan() {
			lines <- scanner.Text()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case line, open := <-lines:
			if !open || line == "exit" {
				return nil
			}
			if line == "dump" {
				say(dump())
			}
		}
	}
}
