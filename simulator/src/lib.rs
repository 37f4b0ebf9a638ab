//! Simulated clusters that speak the list and watch contract over HTTP/2 and TLS, for tests, demo and benchmarks.
