// Package oracle follows a server with real clients and checks, event by event, that what they see could have come from
// one well-behaved kube-apiserver.
//
// A writer gives every object three annotations: SequenceAnnotation, which grows by one with each write to that name (over
// deletions too), and PayloadAnnotation, which begins with that number and has a length that it says. So a state that goes
// back, a state that was skipped and a torn object are seen without understanding any resourceVersion.
package oracle

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// SequenceAnnotation counts the writes to a name of one cluster, from 1.
	SequenceAnnotation = "oracle.tributary.dev/sequence"
	// PayloadAnnotation is "<sequence>:<length>:" and that many letters.
	PayloadAnnotation = "oracle.tributary.dev/payload"
	// clusterAnnotation says which cluster an object is in.
	clusterAnnotation = "tributary.dev/cluster"
	// keptViolations bounds the violations of a dump; the count goes on.
	keptViolations = 20
	// keptGaps bounds the newest gaps of a dump; the count goes on.
	keptGaps = 20
)

// State is what a client knows of one object.
type State struct {
	UID             string `json:"uid"`
	Cluster         string `json:"cluster"`
	Sequence        int64  `json:"sequence"`
	ResourceVersion string `json:"resourceVersion"`
}

// identity is one object: clusters may have the same name.
type identity struct{ key, cluster string }

// Ledger is everything that one client was told, and whether it can be true.
type Ledger struct {
	mutex sync.Mutex
	name  string
	// report is called with each violation, outside of the lock.
	report func(string)

	held map[identity]State
	// gone holds the uid of each object that was deleted or was missing from a list. Such an object never comes back.
	gone map[string]string
	// last is the newest sequence ever seen of each name.
	last map[identity]int64
	// steady is the sequence of each name of which no state can have been skipped since the last list or dump.
	steady map[identity]int64
	// resumed says that the stream began where another was cut, so that synthetic events may come twice.
	resumed bool

	counts     Counts
	violations []string
	gaps       []string
}

// Counts is how much happened.
type Counts struct {
	Added, Modified, Deleted, Replaced int
	// Repeated are events that said what was known, after a cut.
	Repeated int
	// Gaps are states of an object that were skipped, which is right only where a list came between.
	Gaps int
	// Violations is how often the client was told what cannot be.
	Violations int
}

// NewLedger makes an empty ledger; report is called with each violation.
func NewLedger(name string, report func(string)) *Ledger {
	return &Ledger{
		name: name, report: report,
		held: map[identity]State{}, gone: map[string]string{}, last: map[identity]int64{}, steady: map[identity]int64{},
	}
}

func keyOf(meta metav1.Object) string { return meta.GetNamespace() + "/" + meta.GetName() }

// describe reads an object's state; the error says that it is torn.
func describe(meta metav1.Object) (State, error) {
	annotations := meta.GetAnnotations()
	state := State{UID: string(meta.GetUID()), Cluster: annotations[clusterAnnotation], ResourceVersion: meta.GetResourceVersion()}
	sequence, err := strconv.ParseInt(annotations[SequenceAnnotation], 10, 64)
	if err != nil {
		return state, fmt.Errorf("%s has no sequence: %v", keyOf(meta), annotations)
	}
	state.Sequence = sequence
	parts := strings.SplitN(annotations[PayloadAnnotation], ":", 3)
	if len(parts) != 3 || parts[0] != strconv.FormatInt(sequence, 10) || parts[1] != strconv.Itoa(len(parts[2])) {
		return state, fmt.Errorf("%s is torn: sequence %d with payload %.60q", keyOf(meta), sequence, annotations[PayloadAnnotation])
	}
	return state, nil
}

// locked runs a change of the ledger and reports the violations that it found.
func (l *Ledger) locked(change func(violate func(string, ...any))) {
	var found []string
	l.mutex.Lock()
	change(func(format string, arguments ...any) {
		found = append(found, l.name+": "+fmt.Sprintf(format, arguments...))
	})
	l.counts.Violations += len(found)
	for _, text := range found {
		if len(l.violations) < keptViolations {
			l.violations = append(l.violations, text)
		}
	}
	l.mutex.Unlock()
	for _, text := range found {
		l.report(text)
	}
}

// Resume says that another stream goes on where the last one ended.
func (l *Ledger) Resume() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.resumed = true
}

// Replace takes a whole list: the end of initial events, or a LIST.
func (l *Ledger) Replace(objects []metav1.Object) {
	l.locked(func(violate func(string, ...any)) {
		l.counts.Replaced++
		l.resumed = false
		next := map[identity]State{}
		for _, object := range objects {
			state, err := describe(object)
			if err != nil {
				violate("list: %v", err)
			}
			at := identity{keyOf(object), state.Cluster}
			if _, twice := next[at]; twice {
				violate("list: %v is there twice", at)
			}
			l.forward(at, state, "list", violate)
			next[at] = state
		}
		for at, state := range l.held {
			if next[at].UID != state.UID {
				l.gone[state.UID] = fmt.Sprintf("missing from a list after sequence %d", state.Sequence)
			}
		}
		l.held = next
		l.settle()
	})
}

// forward checks that a state is not older than what was seen of that name, and that the object was not gone.
func (l *Ledger) forward(at identity, state State, event string, violate func(string, ...any)) {
	if how, gone := l.gone[state.UID]; gone {
		violate("%s: %v comes back with sequence %d, uid %s was %s", event, at, state.Sequence, state.UID, how)
	}
	last, known := l.last[at]
	switch {
	case known && state.Sequence < last:
		violate("%s: %v goes back from sequence %d to %d", event, at, last, state.Sequence)
	}
	l.last[at] = max(last, state.Sequence)
	if event != "list" {
		l.step(at, state, event)
	}
}

// step counts a state that was skipped.
func (l *Ledger) step(at identity, state State, event string) {
	if before, steady := l.steady[at]; steady && state.Sequence > before+1 {
		l.counts.Gaps++
		gap := fmt.Sprintf("%s %s: %s of %v at version %s, sequence %d after %d",
			time.Now().UTC().Format(time.RFC3339Nano), l.name, event, at, state.ResourceVersion, state.Sequence, before)
		l.gaps = append(l.gaps[max(0, len(l.gaps)+1-keptGaps):], gap)
	}
	l.steady[at] = max(l.steady[at], state.Sequence)
}

// settle forgets the names that are not held: they may come and go unseen until their next ADDED.
func (l *Ledger) settle() {
	l.steady = make(map[identity]int64, len(l.held))
	for at, state := range l.held {
		l.steady[at] = state.Sequence
	}
}

// repeats says whether an event tells what is known already, which is right only after a cut.
func (l *Ledger) repeats(known bool) bool {
	if l.resumed && known {
		l.counts.Repeated++
		return true
	}
	return false
}

// Added takes an ADDED of a stream.
func (l *Ledger) Added(object metav1.Object) {
	l.locked(func(violate func(string, ...any)) {
		l.counts.Added++
		state, err := describe(object)
		if err != nil {
			violate("ADDED: %v", err)
		}
		at := identity{keyOf(object), state.Cluster}
		if before, held := l.held[at]; held && !l.twin(at) && !l.repeats(before.UID == state.UID) {
			violate("ADDED of %v, which is held: sequence %d uid %s, then %d uid %s", at, before.Sequence, before.UID, state.Sequence, state.UID)
		}
		l.forward(at, state, "ADDED", violate)
		l.held[at] = state
	})
}

// twin says whether another cluster has, or had, that name: then an object that is held is shown again after the other's
// DELETED, for clients that key by name.
func (l *Ledger) twin(at identity) bool {
	for other := range l.last {
		if other.key == at.key && other.cluster != at.cluster {
			return true
		}
	}
	return false
}

// Modified takes a MODIFIED of a stream.
func (l *Ledger) Modified(object metav1.Object) {
	l.locked(func(violate func(string, ...any)) {
		l.counts.Modified++
		state, err := describe(object)
		if err != nil {
			violate("MODIFIED: %v", err)
		}
		at := identity{keyOf(object), state.Cluster}
		before, held := l.held[at]
		switch {
		case !held:
			violate("MODIFIED of %v, which is not held: sequence %d uid %s", at, state.Sequence, state.UID)
		case before.UID != state.UID:
			violate("MODIFIED of %v turns uid %s into %s: sequence %d, then %d", at, before.UID, state.UID, before.Sequence, state.Sequence)
		case before.ResourceVersion == state.ResourceVersion:
			if !l.repeats(true) {
				violate("MODIFIED of %v, again at version %s", at, state.ResourceVersion)
			}
		}
		l.forward(at, state, "MODIFIED", violate)
		l.held[at] = state
	})
}

// Deleted takes a DELETED of a stream.
func (l *Ledger) Deleted(object metav1.Object) {
	l.locked(func(violate func(string, ...any)) {
		l.counts.Deleted++
		state, err := describe(object)
		if err != nil {
			violate("DELETED: %v", err)
		}
		at := identity{keyOf(object), state.Cluster}
		before, held := l.held[at]
		_, gone := l.gone[state.UID]
		switch {
		case (!held || before.UID != state.UID) && l.repeats(gone):
			return
		case !held:
			violate("DELETED of %v, which is not held: sequence %d uid %s", at, state.Sequence, state.UID)
		case before.UID != state.UID:
			violate("DELETED of %v with uid %s, held is %s", at, state.UID, before.UID)
		case state.Sequence < before.Sequence:
			violate("DELETED of %v goes back from sequence %d to %d", at, before.Sequence, state.Sequence)
		}
		l.step(at, state, "DELETED")
		l.last[at] = max(l.last[at], state.Sequence)
		l.gone[state.UID] = fmt.Sprintf("deleted at sequence %d", state.Sequence)
		delete(l.held, at)
	})
}

// Dump is what the ledger holds by key, what happened, the first violations and the last gaps. Of a name in several
// clusters any one is shown. What was skipped of a name that is not held now is not counted: it may have been before.
func (l *Ledger) Dump() Store {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.settle()
	held := make(map[string]State, len(l.held))
	for at, state := range l.held {
		held[at.key] = state
	}
	return Store{held, l.counts, append([]string{}, l.violations...), append([]string{}, l.gaps...)}
}
