package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tributary.dev/e2e/clients/oracle"
)

// runOracle follows configmaps and pods and checks each event; given.kind says with which client.
func runOracle(ctx context.Context, config *rest.Config, given settings) error {
	followed := oracle.NewClient(say)
	var err error
	switch given.kind {
	case "informer":
		err = followed.Informers(ctx, config, given.namespace)
	case "retrywatch":
		err = followed.RetryWatchers(ctx, config, given.namespace)
	case "controller-runtime":
		err = cachedClient(ctx, config, given.namespace, followed)
	default:
		err = fmt.Errorf("unknown kind %q: informer, retrywatch or controller-runtime", given.kind)
	}
	if err != nil {
		return err
	}
	say(map[string]any{"event": "synced"})
	return obey(ctx, followed.Dump)
}

// cachedClient starts a controller-runtime cache with a tap before each of its informers.
func cachedClient(ctx context.Context, config *rest.Config, namespace string, followed *oracle.Client) error {
	options := cache.Options{
		NewInformer: func(from toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			resource := "configmaps"
			if _, pod := object.(*corev1.Pod); pod {
				resource = "pods"
			}
			informer := toolscache.NewSharedIndexInformer(followed.Tap(resource, from), object, resync, indexers)
			followed.Hold(resource, informer.GetStore())
			return informer
		},
	}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	store, err := cache.New(config, options)
	if err != nil {
		return err
	}
	for resource, object := range map[string]client.Object{"pods": &corev1.Pod{}, "configmaps": &corev1.ConfigMap{}} {
		informer, err := store.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(followed.Handler(resource)); err != nil {
			return err
		}
	}
	go func() {
		if err := store.Start(ctx); err != nil && !errors.Is(err, context.Canceled) {
			fail(err)
		}
	}()
	return nil
}
