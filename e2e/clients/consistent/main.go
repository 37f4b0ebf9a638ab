// Command tributary-e2e-consistent drives a controller-runtime client whose cached reads wait for its own writes
// (EnableReadYourWritesConsistency). It reads resourceVersions as int64, so the server must give items such ones.
//
//	tributary-e2e-consistent --kubeconfig FILE --namespace NAMESPACE --clusters a,b
//
// It creates, changes and deletes configmaps in these clusters in turn, and reads each back from its cache, until "pause" on
// standard input; "dump" prints what the cache holds and saw, and how the reads went, "exit" ends it. What a read shows must not be older
// than the write before it; among several clusters that is not promised, because the client waits for the greatest version of
// them all, so there it is only counted.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tributary.dev/e2e/clients/oracle"
)

const (
	// clusterAnnotation chooses the cluster of a new object.
	clusterAnnotation = "tributary.dev/cluster"
	// callTimeout is longer than the server's own limits for a write and a read.
	callTimeout = 20 * time.Second
	// pause keeps the pace at what a busy controller does.
	pause = 20 * time.Millisecond
	// names are how many objects there are in each cluster.
	names = 5
)

var printing sync.Mutex

func say(value any) {
	printing.Lock()
	defer printing.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		os.Exit(1)
	}
}

// worker writes and reads back.
type worker struct {
	client    client.Client
	namespace string
	clusters  []string

	// paused is held while nothing is to be written.
	paused sync.Mutex
	mutex  sync.Mutex
	// writes, stale and failed count; wrong are the first failures that are the server's fault.
	writes, stale, failed int
	wrong                 []string
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig")
	namespace := flag.String("namespace", "", "namespace")
	clusters := flag.String("clusters", "", "clusters to write to, in turn")
	flag.Parse()
	if err := run(context.Background(), *kubeconfig, *namespace, strings.Split(*clusters, ",")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, namespace string, clusters []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	followed := oracle.NewClient(say)
	store, err := newCache(ctx, config, namespace, followed)
	if err != nil {
		return err
	}
	yes := true
	consistent, err := client.New(config, client.Options{
		Cache: &client.CacheOptions{Reader: store, EnableReadYourWritesConsistency: &yes},
	})
	if err != nil {
		return err
	}
	go func() {
		if err := store.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}()
	if !store.WaitForCacheSync(ctx) {
		return fmt.Errorf("the cache did not sync")
	}
	say(map[string]any{"event": "synced"})
	working := &worker{client: consistent, namespace: namespace, clusters: clusters}
	go working.work(ctx)
	return obey(followed, working)
}

func obey(followed *oracle.Client, working *worker) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "exit" {
		switch lines.Text() {
		case "pause":
			working.paused.Lock()
		case "dump":
			dump := followed.Dump().(map[string]any)
			working.mutex.Lock()
			dump["writes"], dump["stale"], dump["failed"] = working.writes, working.stale, working.failed
			dump["wrong"] = append([]string{}, working.wrong...)
			working.mutex.Unlock()
			say(dump)
		}
	}
	return nil
}

// newCache makes a cache of the namespace's configmaps with a ledger before and behind its informer.
func newCache(ctx context.Context, config *rest.Config, namespace string, followed *oracle.Client) (cache.Cache, error) {
	store, err := cache.New(config, cache.Options{
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		NewInformer: func(from toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			informer := toolscache.NewSharedIndexInformer(followed.Tap("configmaps", from), object, resync, indexers)
			followed.Hold("configmaps", informer.GetStore())
			return informer
		},
	})
	if err != nil {
		return nil, err
	}
	informer, err := store.GetInformer(ctx, &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(followed.Handler("configmaps"))
	return store, err
}

func (w *worker) work(ctx context.Context) {
	sequences, retired := map[string]int64{}, map[string]int{}
	for turn := 0; ctx.Err() == nil; turn++ {
		cluster := w.clusters[turn%len(w.clusters)]
		base := fmt.Sprintf("own-%s-%d", cluster, turn/len(w.clusters)%names)
		name := fmt.Sprintf("%s-r%d", base, retired[base])
		w.paused.Lock()
		if !w.step(ctx, cluster, name, sequences, turn%7 == 6) {
			// A create whose answer was lost may take effect at any later time: the name is given up.
			retired[base]++
		}
		w.paused.Unlock()
		time.Sleep(pause)
	}
}

// step writes one object and reads it back. It returns whether the name can be used on. Every write but a create is
// conditional, so that one whose answer was lost cannot take effect after a later one.
func (w *worker) step(ctx context.Context, cluster, name string, sequences map[string]int64, remove bool) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	key := client.ObjectKey{Namespace: w.namespace, Name: name}
	var before corev1.ConfigMap
	err := w.client.Get(ctx, key, &before)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		w.failure("get", name, err)
		return true
	}
	sequence := max(sequences[name], number(before.Annotations)) + 1
	switch {
	case absent:
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Annotations: annotations(sequence)}}
		object.Annotations[clusterAnnotation] = cluster
		err = w.client.Create(ctx, object)
	case remove:
		conditions := client.Preconditions{UID: &before.UID, ResourceVersion: &before.ResourceVersion}
		err = w.client.Delete(ctx, &before, conditions)
		sequence--
	default:
		object := before.DeepCopy()
		for name, value := range annotations(sequence) {
			object.Annotations[name] = value
		}
		if sequence%2 == 0 {
			err = w.client.Update(ctx, object)
		} else {
			err = w.client.Patch(ctx, object, client.MergeFromWithOptions(&before, client.MergeFromWithOptimisticLock{}))
		}
	}
	sequences[name] = max(sequences[name], sequence)
	if err != nil {
		w.failure("write", name, err)
		return !absent
	}
	w.readBack(ctx, key, sequence, !absent && remove)
	return true
}

// readBack reads from the cache, which must show the write.
func (w *worker) readBack(ctx context.Context, key client.ObjectKey, sequence int64, removed bool) {
	var after corev1.ConfigMap
	err := w.client.Get(ctx, key, &after)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		w.failure("read", key.Name, err)
		return
	case removed && err == nil, !removed && err != nil, !removed && number(after.Annotations) < sequence:
		w.mutex.Lock()
		w.stale++
		w.mutex.Unlock()
		if len(w.clusters) == 1 {
			w.fault(fmt.Sprintf("%s: the cache shows %d (%v) after write %d (removed: %v)", key.Name, number(after.Annotations), err, sequence, removed))
		}
	}
	w.mutex.Lock()
	w.writes++
	w.mutex.Unlock()
}

// failure counts a call that failed. A version that this client cannot read is the server's fault.
func (w *worker) failure(what, name string, err error) {
	if strings.Contains(err.Error(), "parse") && strings.Contains(err.Error(), "ersion") {
		w.fault(fmt.Sprintf("%s %s: %v", what, name, err))
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.failed++
	if w.failed <= 20 {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", what, name, err)
	}
}

func (w *worker) fault(text string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if len(w.wrong) < 20 {
		w.wrong = append(w.wrong, text)
	}
}

func number(annotations map[string]string) int64 {
	number, _ := strconv.ParseInt(annotations[oracle.SequenceAnnotation], 10, 64)
	return number
}

func annotations(sequence int64) map[string]string {
	text := strconv.FormatInt(sequence, 10)
	return map[string]string{oracle.SequenceAnnotation: text, oracle.PayloadAnnotation: text + ":3:abc"}
}
