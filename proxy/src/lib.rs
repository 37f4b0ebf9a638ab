//! Sends one request to one cluster: connections, credentials, upgrades and streaming.
