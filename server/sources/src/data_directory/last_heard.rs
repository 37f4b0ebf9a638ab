//! The last discovery documents of the clusters, stored for the next start.

use std::time::SystemTime;

use tokio::runtime::Handle;
use tributary_router::LastHeard;

use super::state_file::read_state_file;
use super::{DataDirectory, DataDirectoryError};

const DISCOVERY_FILE: &str = "last-heard.json.gz";

/// Reads the discovery documents that an earlier process stored. Without the file, the kinds of an unreachable cluster
/// are unknown until the cluster answers.
pub fn read(directory: &DataDirectory) -> LastHeard {
    read_state_file(
        directory,
        DISCOVERY_FILE,
        "the stored discovery of the clusters cannot be read; the kinds of an unreachable cluster are unknown until \
         it answers",
        |text| Ok(LastHeard::read(text)?),
    )
}

/// Stores the discovery documents for later processes. Documents of clusters that only other processes serve stay in
/// the file. A failure is logged. The caller's thread must be allowed to block, because a second process may lock the
/// directory for ten seconds.
pub fn write_discovery(directory: &DataDirectory, discovery: LastHeard) {
    if let Err(error) = try_store(directory, discovery) {
        let error = tributary_apimachinery::explain(&error);
        tracing::warn!(
            error,
            "the discovery of clusters could not be written; after a restart the kinds of an unreachable cluster will be unknown"
        );
    }
}

fn try_store(directory: &DataDirectory, discovery: LastHeard) -> Result<(), DataDirectoryError> {
    // Without the lock, a concurrent process's write between this read and this write would be lost.
    let _lock = Handle::current().block_on(directory.lock())?;
    let earlier = directory.read(DISCOVERY_FILE).ok().flatten();
    let earlier = earlier.and_then(|text| LastHeard::read(&text).ok()).unwrap_or_default();
    directory.write(DISCOVERY_FILE, &discovery.with_others(earlier, SystemTime::now()).to_text())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tributary_router::{Router, RouterConfig};

    use super::*;

    /// Two processes share the data directory and serve different clusters. An earlier process stored the discovery
    /// documents of both clusters, and each process must keep the other cluster's document.
    #[tokio::test]
    async fn stored_discovery_keeps_clusters_of_other_processes() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(folder.path().join("data")).unwrap();
        let of = |cluster: &str| {
            let document = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2"}"#;
            let json = format!(
                r#"{{"layout":1,"clusters":{{"{cluster}":{{"discovery":{{"address":"x","core":0,"named":0}}}}}},"texts":[{document}],"openapi":[]}}"#
            );
            let mut packed = flate2::read::GzEncoder::new(json.as_bytes(), flate2::Compression::fast());
            let mut text = Vec::new();
            std::io::Read::read_to_end(&mut packed, &mut text).unwrap();
            LastHeard::read(&text).unwrap()
        };
        let keep = |cluster: &str| {
            let (directory, discovery) = (directory.clone(), of(cluster));
            tokio::task::spawn_blocking(move || super::write_discovery(&directory, discovery))
        };
        keep("a").await.unwrap();
        keep("b").await.unwrap();
        let both = format!("{:?}", read(&directory));
        assert!(both.contains("\"a\"") && both.contains("\"b\""), "{both}");
        // The second process stores its state while the directory is locked.
        let held = directory.lock().await.unwrap();
        let waiting = keep("a");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.unwrap();
        assert_eq!(format!("{:?}", read(&directory)).matches("Served").count(), 2);
    }

    #[tokio::test]
    async fn damaged_discovery_file_is_ignored_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(folder.path().join("data")).unwrap();
        assert_eq!(read(&directory), LastHeard::default(), "there is none yet");
        directory.write(DISCOVERY_FILE, b"no gzip").unwrap();
        let keep = directory.clone();
        let router = Router::new(RouterConfig {
            last_heard: read(&directory),
            keep_last_heard: Some(Box::new(move |discovery| super::write_discovery(&keep, discovery))),
            ..RouterConfig::default()
        });
        router.drain();
        router.last_heard_is_kept().await;
        let text = directory.read(DISCOVERY_FILE).unwrap().unwrap();
        assert_eq!(LastHeard::read(&text).unwrap(), LastHeard::default());
        let mode = std::fs::metadata(directory.file(DISCOVERY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
