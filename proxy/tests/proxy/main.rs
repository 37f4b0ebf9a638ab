//! Tests of the client against fake members over real TLS, HTTP/2 and HTTP/1.1 on loopback.
#![allow(clippy::unwrap_used, reason = "a panic is how a test and its helpers fail")]

mod breakers;
mod credentials;
mod drains;
mod endpoints;
mod faults;
mod identity;
mod member;
mod network;
mod outliers;
mod own_process;
mod own_token;
mod paused;
mod plugins;
mod pool;
mod precedents;
mod probes;
mod proxied_tunnels;
mod proxies;
mod readers;
mod refusals;
mod renewal;
mod resets;
mod retries;
mod shortages;
mod slow_start;
mod streaming;
mod subsets;
mod upgrades;
mod waiting;
mod watches;
mod whole;
