package oracle

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Resources are what every client follows.
var Resources = []string{"configmaps", "pods"}

// Store is what a client holds of one resource, from one point of view, and what it saw.
type Store struct {
	Objects    map[string]State `json:"objects"`
	Counts     Counts           `json:"counts"`
	Violations []string         `json:"violations"`
	// Gaps describes the last states that were skipped.
	Gaps []string `json:"gaps"`
}

// Client follows a server. Its stores are named "<resource>/<point of view>".
type Client struct {
	// Say prints one line of JSON.
	Say     func(any)
	ledgers map[string]interface{ Dump() Store }
	stores  map[string]cache.Store
	// unchecked counts lists of the inconsistency detector that could not be compared.
	unchecked atomic.Int64
}

// NewClient makes a client that holds nothing.
func NewClient(say func(any)) *Client {
	return &Client{Say: say, stores: map[string]cache.Store{}, ledgers: map[string]interface{ Dump() Store }{}}
}

func (c *Client) violation(text string) {
	c.Say(map[string]any{"event": "violation", "message": text})
}

func (c *Client) newLedger(name string) *Ledger {
	ledger := NewLedger(name, c.violation)
	c.ledgers[name] = ledger
	return ledger
}

// Handler makes the event handler for a resource.
func (c *Client) Handler(resource string) *Handlers {
	handlers := NewHandlers(resource+"/handlers", c.violation)
	c.ledgers[resource+"/handlers"] = handlers
	return handlers
}

// Tap puts a ledger of the resource's stream before a source.
func (c *Client) Tap(resource string, from cache.ListerWatcher) cache.ListerWatcher {
	return newTap(from, c.newLedger(resource+"/stream"), func() { c.unchecked.Add(1) })
}

// Hold names a store whose content is dumped.
func (c *Client) Hold(resource string, store cache.Store) { c.stores[resource+"/store"] = store }

// Dump is what the client holds now, from every point of view.
func (c *Client) Dump() any {
	stores := map[string]Store{}
	for name, ledger := range c.ledgers {
		stores[name] = ledger.Dump()
	}
	for name, store := range c.stores {
		objects, violations := map[string]State{}, []string{}
		for _, one := range store.List() {
			meta, ok := one.(metav1.Object)
			if !ok {
				violations = append(violations, fmt.Sprintf("%s: a %T", name, one))
				continue
			}
			state, err := describe(meta)
			if err != nil {
				violations = append(violations, name+": "+err.Error())
			}
			objects[keyOf(meta)] = state
		}
		stores[name] = Store{Objects: objects, Violations: violations}
	}
	return map[string]any{"event": "dump", "stores": stores, "unchecked": c.unchecked.Load()}
}

// Informers starts SharedInformers with a tap before each, as a factory makes them.
func (c *Client) Informers(ctx context.Context, config *rest.Config, namespace string) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(clientset, 0)
	for resource, object := range map[string]runtime.Object{"configmaps": &corev1.ConfigMap{}, "pods": &corev1.Pod{}} {
		factory.InformerFor(object, func(of kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			source := cache.NewListWatchFromClient(of.CoreV1().RESTClient(), resource, namespace, everything())
			tapped := c.Tap(resource, cache.ToListWatcherWithWatchListSemantics(source, of))
			return cache.NewSharedIndexInformer(tapped, object, resync, cache.Indexers{})
		})
		informer := factory.InformerFor(object, nil)
		if _, err := informer.AddEventHandler(c.Handler(resource)); err != nil {
			return err
		}
		c.Hold(resource, informer.GetStore())
	}
	factory.Start(ctx.Done())
	return nil
}

// RetryWatchers lists each resource and follows it with a RetryWatcher; where that ends, with 410, it lists again.
func (c *Client) RetryWatchers(ctx context.Context, config *rest.Config, namespace string) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	core := clientset.CoreV1()
	sources := map[string]source{
		"configmaps": {
			list: func(options metav1.ListOptions) (runtime.Object, error) {
				return core.ConfigMaps(namespace).List(ctx, options)
			},
			watch: func(options metav1.ListOptions) (watch.Interface, error) {
				return core.ConfigMaps(namespace).Watch(ctx, options)
			},
		},
		"pods": {
			list: func(options metav1.ListOptions) (runtime.Object, error) {
				return core.Pods(namespace).List(ctx, options)
			},
			watch: func(options metav1.ListOptions) (watch.Interface, error) {
				return core.Pods(namespace).Watch(ctx, options)
			},
		},
	}
	for resource, from := range sources {
		from.ledger = c.newLedger(resource + "/stream")
		go func() {
			for ctx.Err() == nil {
				if err := from.follow(ctx); err != nil {
					fmt.Fprintf(os.Stderr, "%s: %v\n", resource, err)
					time.Sleep(500 * time.Millisecond)
				}
			}
		}()
	}
	return nil
}

// source is one resource for a RetryWatcher.
type source struct {
	list    func(metav1.ListOptions) (runtime.Object, error)
	watch   func(metav1.ListOptions) (watch.Interface, error)
	ledger  *Ledger
	watched bool
}

// WatchWithContext opens a stream; every one but the first goes on where another was cut.
func (s *source) WatchWithContext(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
	stream, err := s.watch(options)
	if err == nil && s.watched {
		s.ledger.Resume()
	}
	s.watched = s.watched || err == nil
	return stream, err
}

func (s source) follow(ctx context.Context) error {
	list, err := s.list(metav1.ListOptions{})
	if err != nil {
		return err
	}
	objects, version, err := contents(list)
	if err != nil {
		return err
	}
	s.ledger.Replace(objects)
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, version, &s)
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if object, ok := event.Object.(metav1.Object); ok {
			s.ledger.Event(event.Type, object)
		}
	}
	return nil
}
