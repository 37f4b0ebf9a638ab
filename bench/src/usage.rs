//! The resource usage of server processes, from `/proc`.

use std::fs;
use std::time::Duration;

use anyhow::Context;

/// The process ids of a measured server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerProcesses {
    pub(crate) server: Option<u32>,
    /// The process id of the server's storage (etcd), if the storage is a separate process.
    pub(crate) storage: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) server: Option<Duration>,
    pub(crate) storage: Option<Duration>,
}

impl ServerProcesses {
    pub(crate) fn cpu(&self) -> Cpu {
        Cpu { server: self.server.and_then(|pid| cpu(pid).ok()), storage: self.storage.and_then(|pid| cpu(pid).ok()) }
    }

    /// The CPU time since an earlier reading.
    pub(crate) fn cpu_since(&self, before: Cpu) -> Cpu {
        let now = self.cpu();
        let since = |now: Option<Duration>, before: Option<Duration>| Some(now?.saturating_sub(before?));
        Cpu { server: since(now.server, before.server), storage: since(now.storage, before.storage) }
    }

    /// The resident memory of the server, in bytes.
    pub(crate) fn resident(&self) -> Option<u64> {
        self.server.and_then(|pid| resident(pid).ok())
    }
}

/// Returns the CPU time of all current threads of a process. The time of threads that have ended is missing, which
/// matters little: a server's threads live as long as the process, except a few for disk access.
fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let mut used = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task")).context("read the process's threads")? {
        // `schedstat` counts nanoseconds, whereas /proc/<pid>/stat counts hundredths of a second. A thread may end
        // before its file is read.
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
    fn memory_and_cpu_time_of_this_process_are_measured() {
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
