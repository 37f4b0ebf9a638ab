//! Prints objects as Table rows, cell by cell as kube-apiserver prints them.
