//! Last known discovery of clusters, kept from one run to the next.

use std::time::SystemTime;

use tokio::runtime::Handle;
use tributary_router::LastHeard;

use super::kept_file::read_kept_file;
use super::{DataDirectory, DataDirectoryError};

/// Name of the file.
const LAST_HEARD_FILE: &str = "last-heard.json.gz";

/// State of an earlier run. Without it the kinds of an unreachable cluster are unknown until it answers.
pub fn read(directory: &DataDirectory) -> LastHeard {
    read_kept_file(
        directory,
        LAST_HEARD_FILE,
        "what clusters served before cannot be read; the kinds of one that is down are not known until it answers",
        |text| Ok(LastHeard::read(text)?),
    )
}

/// Stores the state for later runs, with the state of other processes' clusters. A failure is logged. Call it on a
/// thread that may block: a second process may lock the directory, for ten seconds at most.
pub fn write_last_heard(directory: &DataDirectory, heard: LastHeard) {
    if let Err(error) = try_keep(directory, heard) {
        let error = tributary_apimachinery::explain(&error);
        tracing::warn!(
            error,
            "the discovery of clusters could not be written; after a restart the kinds of an unreachable cluster will be unknown"
        );
    }
}

fn try_keep(directory: &DataDirectory, heard: LastHeard) -> Result<(), DataDirectoryError> {
    // Otherwise a write between the read and the write would be lost.
    let _lock = Handle::current().block_on(directory.lock())?;
    let earlier = directory.read(LAST_HEARD_FILE).ok().flatten();
    let earlier = earlier.and_then(|text| LastHeard::read(&text).ok()).unwrap_or_default();
    directory.write(LAST_HEARD_FILE, &heard.with_others(earlier, SystemTime::now()).to_text())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tributary_router::{Router, RouterConfig};

    use super::*;

    /// Two runs with an unreachable cluster each; an earlier run knew the kinds of both.
    #[tokio::test]
    async fn write_of_last_discovery_keeps_clusters_of_other_runs() {
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
            let (directory, heard) = (directory.clone(), of(cluster));
            tokio::task::spawn_blocking(move || super::write_last_heard(&directory, heard))
        };
        keep("a").await.unwrap();
        keep("b").await.unwrap();
        let both = format!("{:?}", read(&directory));
        assert!(both.contains("\"a\"") && both.contains("\"b\""), "{both}");
        // The second run again, while the directory is locked.
        let held = directory.lock().await.unwrap();
        let waiting = keep("a");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.unwrap();
        assert_eq!(format!("{:?}", read(&directory)).matches("Served").count(), 2);
    }

    #[tokio::test]
    async fn a_damaged_file_is_ignored_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(folder.path().join("data")).unwrap();
        assert_eq!(read(&directory), LastHeard::default(), "there is none yet");
        directory.write(LAST_HEARD_FILE, b"no gzip").unwrap();
        let keep = directory.clone();
        let router = Router::new(RouterConfig {
            last_heard: read(&directory),
            keep_last_heard: Some(Box::new(move |heard| super::write_last_heard(&keep, heard))),
            ..RouterConfig::default()
        });
        router.drain();
        router.last_heard_is_kept().await;
        let text = directory.read(LAST_HEARD_FILE).unwrap().unwrap();
        assert_eq!(LastHeard::read(&text).unwrap(), LastHeard::default());
        let mode = std::fs::metadata(directory.file(LAST_HEARD_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
