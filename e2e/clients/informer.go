package main

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// syncTimeout is how long a client may take to sync before the run counts as failed.
const syncTimeout = 60 * time.Second

// held is what a client holds of one object. Generation stands in the data of a configmap or a label of a pod and only
// grows, so that an object that goes back is seen without understanding resourceVersions.
type held struct {
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	Generation      string `json:"generation"`
	Cluster         string `json:"cluster"`
}

// dumped is the answer to "dump".
type dumped struct {
	Event   string                     `json:"event"`
	Objects map[string]map[string]held `json:"objects"`
	Added   int                        `json:"added"`
	Updated int                        `json:"updated"`
	Deleted int                        `json:"deleted"`
	// WentBack names objects for which a handler saw an older state after a newer one.
	WentBack []string `json:"wentBack"`
	// Absences are the longest times, in seconds, for which a key that came back was gone, by "<resource> <key>".
	Absences map[string]float64 `json:"absences"`
}

// counter is an event handler that counts, and remembers the newest generation of each object by uid.
type counter struct {
	sync.Mutex
	added, updated, deleted int
	newest                  map[string]string
	wentBack                []string
	// gone says since when keys are deleted, absences for how long those that came back were.
	gone     map[string]time.Time
	absences map[string]float64
}

func newCounter() *counter {
	return &counter{newest: map[string]string{}, gone: map[string]time.Time{}, absences: map[string]float64{}}
}

// of is the handler of one resource.
func (c *counter) of(resource string) toolscache.ResourceEventHandler {
	key := func(object any) string {
		key, _ := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object)
		return resource + " " + key
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			c.OnAdd(object, initial)
			c.back(key(object))
		},
		UpdateFunc: c.OnUpdate,
		DeleteFunc: func(object any) {
			c.OnDelete(object)
			c.away(key(object))
		},
	}
}

func (c *counter) away(key string) {
	c.Lock()
	defer c.Unlock()
	c.gone[key] = time.Now()
}

func (c *counter) back(key string) {
	c.Lock()
	defer c.Unlock()
	if since, gone := c.gone[key]; gone {
		c.absences[key] = max(c.absences[key], time.Since(since).Seconds())
		delete(c.gone, key)
	}
}

func (c *counter) see(object any) {
	of := describe(object)
	if before, known := c.newest[of.UID]; known && olderThan(of.Generation, before) {
		c.wentBack = append(c.wentBack, of.UID+": "+before+" then "+of.Generation)
	}
	c.newest[of.UID] = of.Generation
}

func (c *counter) OnAdd(object any, _ bool) {
	c.Lock()
	defer c.Unlock()
	c.added++
	c.see(object)
}

func (c *counter) OnUpdate(_, object any) {
	c.Lock()
	defer c.Unlock()
	c.updated++
	c.see(object)
}

func (c *counter) OnDelete(any) {
	c.Lock()
	defer c.Unlock()
	c.deleted++
}

// olderThan compares decimal numbers without leading zeros.
func olderThan(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

func describe(object any) held {
	meta, ok := object.(metav1.Object)
	if !ok {
		return held{}
	}
	return held{
		UID:             string(meta.GetUID()),
		ResourceVersion: meta.GetResourceVersion(),
		Generation:      meta.GetLabels()["generation"],
		Cluster:         meta.GetAnnotations()["tributary.dev/cluster"],
	}
}

func (c *counter) dump(objects map[string]map[string]held) dumped {
	c.Lock()
	defer c.Unlock()
	return dumped{
		Event: "dump", Objects: objects, Added: c.added, Updated: c.updated, Deleted: c.deleted,
		WentBack: append([]string{}, c.wentBack...), Absences: maps.Clone(c.absences),
	}
}

func runInformers(ctx context.Context, config *rest.Config, given settings) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(given.namespace))
	of := map[string]toolscache.SharedIndexInformer{}
	counts := newCounter()
	for _, resource := range strings.Split(given.resources, ",") {
		informer, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource(resource))
		if err != nil {
			return err
		}
		of[resource] = informer.Informer()
		if _, err := of[resource].AddEventHandler(counts.of(resource)); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	limited, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	for _, informer := range of {
		if !toolscache.WaitForCacheSync(limited.Done(), informer.HasSynced) {
			return errors.New("an informer did not sync")
		}
	}
	say(map[string]any{"event": "synced"})
	return obey(ctx, func() any {
		objects := map[string]map[string]held{}
		for resource, informer := range of {
			objects[resource] = map[string]held{}
			for _, object := range informer.GetStore().List() {
				key, _ := toolscache.MetaNamespaceKeyFunc(object)
				objects[resource][key] = describe(object)
			}
		}
		return counts.dump(objects)
	})
}

func runControllerRuntime(ctx context.Context, config *rest.Config, given settings) error {
	options := cache.Options{}
	if given.namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{given.namespace: {}}
	}
	store, err := cache.New(config, options)
	if err != nil {
		return err
	}
	counts := newCounter()
	for _, object := range []client.Object{&corev1.Pod{}, &corev1.ConfigMap{}} {
		informer, err := store.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(counts); err != nil {
			return err
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- store.Start(ctx) }()
	limited, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !store.WaitForCacheSync(limited) {
		return errors.New("the cache did not sync")
	}
	say(map[string]any{"event": "synced"})
	return obey(ctx, func() any {
		objects := map[string]map[string]held{"pods": {}, "configmaps": {}}
		var pods corev1.PodList
		var maps corev1.ConfigMapList
		if err := errors.Join(store.List(ctx, &pods), store.List(ctx, &maps)); err != nil {
			return map[string]any{"event": "error", "message": err.Error()}
		}
		for index := range pods.Items {
			put(objects["pods"], &pods.Items[index])
		}
		for index := range maps.Items {
			put(objects["configmaps"], &maps.Items[index])
		}
		return counts.dump(objects)
	})
}

func put(into map[string]held, object runtime.Object) {
	key, _ := toolscache.MetaNamespaceKeyFunc(object)
	into[key] = describe(object)
}
