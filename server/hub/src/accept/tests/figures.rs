//! Time and memory of the acceptance of 1,000 members. The reflectors' own objects are not part of the figures.

use std::time::Duration;

use super::*;

const MEMBERS: usize = 1000;

/// Number of changes, of which the fastest and the median are printed.
const CHANGES: usize = 40;

/// Size of the token of a ServiceAccount.
const TOKEN_BYTES: usize = 1000;

/// The resident memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() << 10
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

#[tokio::test]
#[ignore = "measures"]
async fn thousand_members_with_secrets_and_one_changed_member() {
    let mut hub = Hub::default();
    for index in 0..MEMBERS {
        let name = format!("member-{index}");
        hub.put_member(&name, json!({"index": index}));
        hub.put_secret(&name, json!({"token": STANDARD.encode("t".repeat(TOKEN_BYTES)), "ca.crt": authority()}));
    }
    let snapshot = hub.snapshot();
    let (before, begun) = (resident(), Instant::now());
    let accepted = hub.accept_snapshot(&snapshot, &|_| Ok(())).await;
    let (elapsed, memory) = (begun.elapsed(), resident().saturating_sub(before) / MEMBERS);
    println!("{MEMBERS} members: accepted in {elapsed:?}, {memory} bytes for each member");
    assert_eq!(accepted.configuration.clusters.len(), MEMBERS);
    let mut times = Vec::new();
    for change in 0..CHANGES {
        hub.put_member(
            &format!("member-{change}"),
            json!({"index": change, "endpoints": ["https://new.example:6443"]}),
        );
        let snapshot = hub.snapshot();
        let (begun, used) = (Instant::now(), cpu_time());
        let accepted = hub.accept_snapshot(&snapshot, &|_| Ok(())).await;
        times.push((cpu_time() - used, begun.elapsed()));
        assert!(accepted.is_changed && accepted.configuration.clusters.len() == MEMBERS);
    }
    times.sort();
    println!("one changed member, CPU and elapsed: fastest {:?}, median {:?}", times[0], times[CHANGES / 2]);
    let begun = Instant::now();
    let copy = serde_json::to_vec(&hub.in_force).unwrap();
    println!("the copy for the data directory: {} bytes, written to memory in {:?}", copy.len(), begun.elapsed());
}
