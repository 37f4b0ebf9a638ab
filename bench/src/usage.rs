//! What a server process uses, from `/proc`.

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// The processes of one side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerProcesses {
    /// The server that answers.
    pub(crate) server: Option<u32>,
    /// Its storage, where it has one of its own.
    pub(crate) storage: Option<u32>,
}

/// CPU time that was used.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// By the server.
    pub(crate) server: Option<Duration>,
    /// By its storage.
    pub(crate) storage: Option<Duration>,
}

impl ServerProcesses {
    /// CPU time so far.
    pub(crate) fn cpu(&self) -> Cpu {
        Cpu { server: self.server.and_then(|pid| cpu(pid).ok()), storage: self.storage.and_then(|pid| cpu(pid).ok()) }
    }

    /// CPU time since an earlier look.
    pub(crate) fn cpu_since(&self, before: Cpu) -> Cpu {
        let now = self.cpu();
        let since = |now: Option<Duration>, before: Option<Duration>| Some(now?.saturating_sub(before?));
        Cpu { server: since(now.server, before.server), storage: since(now.storage, before.storage) }
    }

    /// Resident memory of the server, in bytes.
    pub(crate) fn resident(&self) -> Option<u64> {
        self.server.and_then(|pid| resident(pid).ok())
    }
}

/// What the threads that a process has now have used. A thread that ends takes its time with it: a server's are there
/// as long as it is, but for a few that wait for disks.
fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let mut used = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("read the process's threads")? {
        // In nanoseconds, where /proc/<pid>/stat counts hundredths of a second. It may have ended meanwhile.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        let on_cpu = text.split_whitespace().next().context("an empty schedstat")?;
        used += Duration::from_nanos(on_cpu.parse().context("a time in schedstat")?);
    }
    Ok(used)
}

fn resident(pid: u32) -> anyhow::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("read the process's status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().context("read VmRSS")?;
    Ok(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_time() {
        let own = ServerProcesses { server: Some(std::process::id()), storage: None };
        assert!(own.resident().is_some_and(|bytes| bytes > 100_000));
        let before = own.cpu();
        let mut sum = 0_u64;
        while own.cpu_since(before).server < Some(Duration::from_millis(20)) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert_eq!(own.cpu().storage, None);
    }
}
