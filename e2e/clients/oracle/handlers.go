package oracle

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Handlers is an event handler of an informer that checks what controllers see: the store's changes, in one order per key.
type Handlers struct {
	*Ledger
	// byKey is what a controller holds: one object per name, whichever cluster it is in.
	byKey map[string]State
}

// NewHandlers makes a handler; report is called with each violation.
func NewHandlers(name string, report func(string)) *Handlers {
	return &Handlers{Ledger: NewLedger(name, report), byKey: map[string]State{}}
}

// OnAdd is called for a key that the store did not have.
func (h *Handlers) OnAdd(object any, _ bool) {
	h.locked(func(violate func(string, ...any)) {
		h.counts.Added++
		at, state := h.read(object, "OnAdd", violate)
		// Both objects of one name in a list are new to a store that had none.
		if before, held := h.byKey[at.key]; held && !h.twin(at) {
			violate("OnAdd of %v, which is held: sequence %d, then %d", at, before.Sequence, state.Sequence)
		}
		h.forward(at, state, "OnAdd", violate)
		h.byKey[at.key] = state
	})
}

// OnUpdate is called with what the store had and has.
func (h *Handlers) OnUpdate(old, object any) {
	h.locked(func(violate func(string, ...any)) {
		h.counts.Modified++
		was, before := h.read(old, "OnUpdate", violate)
		at, state := h.read(object, "OnUpdate", violate)
		// A list with two objects of one name is entered object by object, each against what was held before the list.
		if held := h.byKey[was.key]; held != before && !h.twin(at) {
			violate("OnUpdate of %v from %+v, held is %+v", at, before, held)
		}
		if before.UID != state.UID && !h.twin(at) {
			h.gone[before.UID] = fmt.Sprintf("replaced at sequence %d", state.Sequence)
		}
		h.forward(at, state, "OnUpdate", violate)
		h.byKey[at.key] = state
	})
}

// OnDelete is called for a key that the store had.
func (h *Handlers) OnDelete(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	h.locked(func(violate func(string, ...any)) {
		h.counts.Deleted++
		at, state := h.read(object, "OnDelete", violate)
		before, held := h.byKey[at.key]
		switch {
		case !held:
			violate("OnDelete of %v, which is not held: sequence %d", at, state.Sequence)
		case before.UID != state.UID && !h.twin(at):
			violate("OnDelete of %v with uid %s, held is %s", at, state.UID, before.UID)
		}
		h.last[at] = max(h.last[at], state.Sequence)
		h.gone[state.UID] = fmt.Sprintf("deleted at sequence %d", state.Sequence)
		delete(h.byKey, at.key)
	})
}

func (h *Handlers) read(object any, event string, violate func(string, ...any)) (identity, State) {
	meta, ok := object.(metav1.Object)
	if !ok {
		violate("%s with a %T", event, object)
		return identity{}, State{}
	}
	state, err := describe(meta)
	if err != nil {
		violate("%s: %v", event, err)
	}
	return identity{keyOf(meta), state.Cluster}, state
}

// Dump is what a controller holds by key, what happened, the first violations and the last gaps.
func (h *Handlers) Dump() Store {
	dump := h.Ledger.Dump()
	h.mutex.Lock()
	defer h.mutex.Unlock()
	dump.Objects = make(map[string]State, len(h.byKey))
	for key, state := range h.byKey {
		dump.Objects[key] = state
	}
	return dump
}
