package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The label and the key of the Secrets that multicluster-runtime's provider of kubeconfigs reads.
const (
	secretLabel = "sigs.k8s.io/multicluster-runtime-kubeconfig=true"
	secretKey   = "kubeconfig"
)

// reconciledBy is the label that each manager writes to the objects of its cluster.
const reconciledBy = "reconciled-by"

// runPublished reads clusters as multicluster-runtime does: each labelled Secret of a namespace is a cluster with the
// name of the Secret. It lists the pods of each cluster, and runs a manager for each cluster that labels ConfigMaps.
func runPublished(ctx context.Context, hub *rest.Config, given settings) error {
	secrets, err := kubernetes.NewForConfig(hub)
	if err != nil {
		return err
	}
	list, err := secrets.CoreV1().Secrets(given.secrets).List(ctx, metav1.ListOptions{LabelSelector: secretLabel})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	for _, secret := range list.Items {
		config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data[secretKey])
		if err != nil {
			return fmt.Errorf("secret %s: %w", secret.Name, err)
		}
		if err := sayPods(ctx, secret.Name, config, given.namespace); err != nil {
			return err
		}
		running.Go(func() {
			if err := runClusterManager(ctx, secret.Name, config, given.namespace); err != nil {
				say(map[string]any{"event": "error", "cluster": secret.Name, "error": err.Error()})
			}
		})
	}
	err = obey(ctx, func() any { return map[string]any{"event": "dump"} })
	stop()
	running.Wait()
	return err
}

func sayPods(ctx context.Context, cluster string, config *rest.Config, namespace string) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	pods, err := clients.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cluster %s: %w", cluster, err)
	}
	names := []string{}
	for _, pod := range pods.Items {
		names = append(names, pod.Name)
	}
	say(map[string]any{"event": "pods", "cluster": cluster, "server": config.Host, "pods": names})
	return nil
}

func runClusterManager(ctx context.Context, cluster string, config *rest.Config, namespace string) error {
	wait := time.Second
	options := manager.Options{
		Metrics:                 server.Options{BindAddress: "0"},
		Cache:                   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		GracefulShutdownTimeout: &wait,
	}
	own, err := manager.New(config, options)
	if err != nil {
		return err
	}
	reconciler := func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		var object corev1.ConfigMap
		if err := own.GetClient().Get(ctx, request.NamespacedName, &object); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if object.Labels[reconciledBy] == cluster {
			return reconcile.Result{}, nil
		}
		before := object.DeepCopy()
		metav1.SetMetaDataLabel(&object.ObjectMeta, reconciledBy, cluster)
		if err := own.GetClient().Patch(ctx, &object, client.MergeFrom(before)); err != nil {
			return reconcile.Result{}, err
		}
		say(map[string]any{"event": "reconciled", "cluster": cluster, "name": object.Name})
		return reconcile.Result{}, nil
	}
	controller := builder.ControllerManagedBy(own).Named("label-" + cluster).For(&corev1.ConfigMap{})
	if err := controller.Complete(reconcile.Func(reconciler)); err != nil {
		return err
	}
	return own.Start(ctx)
}
