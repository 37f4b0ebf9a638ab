//! End-to-end tests against real kube-apiservers and real clients.
