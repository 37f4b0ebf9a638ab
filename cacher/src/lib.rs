//! Holds one resource of one cluster in memory: reflector, store and state.
