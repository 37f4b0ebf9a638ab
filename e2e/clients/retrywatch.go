package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	watchtools "k8s.io/client-go/tools/watch"
)

// configMapWatch opens plain watches for a RetryWatcher.
type configMapWatch struct {
	clientset *kubernetes.Clientset
	namespace string
}

func (w configMapWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return w.clientset.CoreV1().ConfigMaps(w.namespace).Watch(ctx, options)
}

// runRetryWatch prints each event as it comes. A RetryWatcher ends by itself only on an in-stream ERROR it cannot heal.
func runRetryWatch(ctx context.Context, config *rest.Config, given settings) error {
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	from := given.version
	if from == "" {
		list, err := clientset.CoreV1().ConfigMaps(given.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		from = list.ResourceVersion
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, from, configMapWatch{clientset, given.namespace})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	say(map[string]any{"event": "synced", "resourceVersion": from})
	for event := range watcher.ResultChan() {
		line := map[string]any{"event": string(event.Type)}
		if meta, ok := event.Object.(metav1.Object); ok {
			line["name"], line["object"] = meta.GetName(), describe(event.Object)
		} else {
			line["object"] = event.Object
		}
		say(line)
	}
	say(map[string]any{"event": "ended"})
	return nil
}
