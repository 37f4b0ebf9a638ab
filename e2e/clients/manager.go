package main

import (
	"context"
	"errors"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// reconciler reads each object by the manager's client, and keeps the state of its last reconciliation.
type reconciler struct {
	client client.Client
	counts *counter
	// empty returns a new object of the reconciled kind.
	empty func() client.Object

	lock    sync.Mutex
	objects map[string]held
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object, key := r.empty(), request.String()
	err := r.client.Get(ctx, request.NamespacedName, object)
	r.lock.Lock()
	defer r.lock.Unlock()
	_, known := r.objects[key]
	switch {
	case err == nil && known:
		r.counts.OnUpdate(nil, object)
		r.objects[key] = describe(object)
	case err == nil:
		r.counts.OnAdd(object, false)
		r.objects[key] = describe(object)
	case apierrors.IsNotFound(err) && known:
		r.counts.OnDelete(nil)
		delete(r.objects, key)
	case !apierrors.IsNotFound(err):
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, nil
}

func (r *reconciler) dump() map[string]held {
	r.lock.Lock()
	defer r.lock.Unlock()
	return maps.Clone(r.objects)
}

// runManager runs a manager with one controller for pods and one for configmaps.
func runManager(ctx context.Context, config *rest.Config, given settings) error {
	ctrl.SetLogger(klog.Background())
	options := ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}}
	if given.namespace != "" {
		options.Cache.DefaultNamespaces = map[string]cache.Config{given.namespace: {}}
	}
	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return err
	}
	counts := newCounter()
	reconcilers := map[string]*reconciler{}
	for resource, empty := range map[string]func() client.Object{
		"pods":       func() client.Object { return &corev1.Pod{} },
		"configmaps": func() client.Object { return &corev1.ConfigMap{} },
	} {
		reconcilers[resource] = &reconciler{
			client: manager.GetClient(), counts: counts, empty: empty, objects: map[string]held{},
		}
		err := ctrl.NewControllerManagedBy(manager).Named(resource).For(empty()).Complete(reconcilers[resource])
		if err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() {
		stopped <- manager.Start(ctx)
		cancel()
	}()
	limited, release := context.WithTimeout(ctx, syncTimeout)
	defer release()
	if !manager.GetCache().WaitForCacheSync(limited) {
		cancel()
		return errors.Join(errors.New("the manager did not sync"), <-stopped)
	}
	say(map[string]any{"event": "synced"})
	err = obey(ctx, func() any {
		objects := map[string]map[string]held{}
		for resource, one := range reconcilers {
			objects[resource] = one.dump()
		}
		return counts.dump(objects)
	})
	cancel()
	return errors.Join(err, <-stopped)
}
