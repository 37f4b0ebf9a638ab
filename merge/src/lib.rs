//! Merges lists and watches of many clusters under one composite resourceVersion, without I/O.
