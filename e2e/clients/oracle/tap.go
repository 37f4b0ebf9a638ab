package oracle

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// tap stands between a Reflector and the server and enters what passes into a ledger: exactly the events that the
// Reflector took, in its order.
type tap struct {
	cache.ListerWatcherWithContext
	// unsupported is passed on: a Reflector asks its source whether it must not use WatchList.
	unsupported bool
	ledger      *Ledger
	// unchecked is called where the inconsistency detector's list was refused.
	unchecked func()

	mutex sync.Mutex
	// pages are the items of a list so far.
	pages []metav1.Object
	// listed says that the next stream begins at a list, not where another was cut.
	listed bool
	// current is closed when the events of the last stream are entered.
	current chan struct{}
	// initial are the objects of the stream that began last, until its initial events end.
	initial []runtime.Object
}

func newTap(from cache.ListerWatcher, ledger *Ledger, unchecked func()) *tap {
	asked, knows := from.(interface{ IsWatchListSemanticsUnSupported() bool })
	return &tap{
		ListerWatcherWithContext: cache.ToListerWatcherWithContext(from),
		unsupported:              knows && asked.IsWatchListSemanticsUnSupported(),
		ledger:                   ledger,
		unchecked:                unchecked,
	}
}

// IsWatchListSemanticsUnSupported answers the Reflector.
func (t *tap) IsWatchListSemanticsUnSupported() bool { return t.unsupported }

// List and Watch are what a ListerWatcher without contexts is asked; a Reflector uses the others.
func (t *tap) List(options metav1.ListOptions) (runtime.Object, error) {
	return t.ListWithContext(context.Background(), options)
}

// Watch is List's counterpart.
func (t *tap) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return t.WatchWithContext(context.Background(), options)
}

func (t *tap) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		// The stream whose initial events are compared is still open.
		return t.detector(t.ListerWatcherWithContext.ListWithContext(ctx, options))
	}
	t.settle(ctx)
	list, err := t.ListerWatcherWithContext.ListWithContext(ctx, options)
	if err != nil {
		return list, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if options.Continue == "" {
		t.pages = nil
	}
	for _, item := range items {
		if object, ok := item.(metav1.Object); ok {
			t.pages = append(t.pages, object)
		}
	}
	if of.GetContinue() == "" {
		t.ledger.Replace(t.pages)
		t.pages, t.listed = nil, true
	}
	return list, nil
}

// detector answers the inconsistency detector. It asks again for ever where the version is forgotten, which is right after
// a restart of the server: then it is given what was streamed, and that is counted.
func (t *tap) detector(list runtime.Object, err error) (runtime.Object, error) {
	if err == nil || !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		return list, err
	}
	t.unchecked()
	t.mutex.Lock()
	defer t.mutex.Unlock()
	streamed := &metav1.List{}
	for _, object := range t.initial {
		streamed.Items = append(streamed.Items, runtime.RawExtension{Object: object})
	}
	return streamed, nil
}

// settle waits until the events of the last stream are entered; the Reflector has stopped it.
func (t *tap) settle(ctx context.Context) {
	t.mutex.Lock()
	current := t.current
	t.mutex.Unlock()
	if current == nil {
		return
	}
	select {
	case <-current:
	case <-ctx.Done():
	}
}

func (t *tap) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	t.settle(ctx)
	inner, err := t.ListerWatcherWithContext.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	stream := &tapped{tap: t, inner: inner, out: make(chan watch.Event), stopped: make(chan struct{})}
	ended := make(chan struct{})
	t.mutex.Lock()
	if !initial && !t.listed {
		t.ledger.Resume()
	}
	t.current, t.initial, t.listed = ended, nil, false
	t.mutex.Unlock()
	go stream.pass(initial, ended)
	return stream, nil
}

// tapped is one watch.
type tapped struct {
	tap     *tap
	inner   watch.Interface
	out     chan watch.Event
	once    sync.Once
	stopped chan struct{}
}

func (s *tapped) ResultChan() <-chan watch.Event { return s.out }

func (s *tapped) Stop() {
	s.once.Do(func() {
		close(s.stopped)
		s.inner.Stop()
	})
}

// pass hands events on and enters each that was taken.
func (s *tapped) pass(initial bool, ended chan struct{}) {
	defer close(ended)
	defer close(s.out)
	// The stream of a Reflector that does not listen any more is emptied, so that its sender ends.
	defer func() {
		s.inner.Stop()
		for range s.inner.ResultChan() {
		}
	}()
	for event := range s.inner.ResultChan() {
		select {
		case s.out <- event:
		case <-s.stopped:
			return
		}
		initial = s.enter(event, initial)
	}
}

// enter returns whether the stream is still in its initial events.
func (s *tapped) enter(event watch.Event, initial bool) bool {
	object, ok := event.Object.(metav1.Object)
	if !ok {
		return initial
	}
	switch {
	case initial && event.Type == watch.Bookmark && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
		s.tap.mutex.Lock()
		objects := make([]metav1.Object, 0, len(s.tap.initial))
		for _, one := range s.tap.initial {
			objects = append(objects, one.(metav1.Object))
		}
		s.tap.mutex.Unlock()
		s.tap.ledger.Replace(objects)
		return false
	case initial && event.Type == watch.Added:
		s.tap.mutex.Lock()
		s.tap.initial = append(s.tap.initial, event.Object)
		s.tap.mutex.Unlock()
	case initial:
		s.tap.ledger.locked(func(violate func(string, ...any)) {
			violate("%s of %s within the initial events", event.Type, keyOf(object))
		})
	default:
		s.tap.ledger.Event(event.Type, object)
	}
	return initial
}

// Event enters an event of a stream by its type.
func (l *Ledger) Event(kind watch.EventType, object metav1.Object) {
	switch kind {
	case watch.Added:
		l.Added(object)
	case watch.Modified:
		l.Modified(object)
	case watch.Deleted:
		l.Deleted(object)
	}
}
