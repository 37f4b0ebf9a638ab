//! What clusters said of themselves when they were last heard, kept in the data directory from one run to the next.

use tributary_router::LastHeard;

use crate::data_directory::DataDirectory;

/// Where it is kept.
const LAST_HEARD_FILE: &str = "last-heard.json.gz";

/// What an earlier run kept. Without it the kinds of a cluster that is down are not known until it answers: no reason
/// not to start.
pub(crate) fn read(directory: &DataDirectory) -> LastHeard {
    let read = directory.read(LAST_HEARD_FILE).map_err(anyhow::Error::from);
    let parsed = read.and_then(|text| match text {
        Some(text) => Ok(LastHeard::read(&text)?),
        None => Ok(LastHeard::default()),
    });
    parsed.unwrap_or_else(|error| {
        tracing::warn!(
            file = LAST_HEARD_FILE,
            error = format!("{error:#}"),
            "what clusters served before cannot be read; the kinds of one that is down are not known until it answers"
        );
        LastHeard::default()
    })
}

/// Keeps it for later runs. Where that fails the next will know less at its start, so it is logged and served on.
pub(crate) fn write(directory: &DataDirectory, text: &[u8]) {
    if let Err(error) = directory.write(LAST_HEARD_FILE, text) {
        let error = tributary_apimachinery::explain(&error);
        tracing::warn!(
            error,
            "what clusters serve was not kept; after a restart the kinds of one that is down will not be known"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tributary_router::{Router, RouterConfig};

    use super::*;

    #[tokio::test]
    async fn a_damaged_file_is_ignored_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let directory = DataDirectory::open(folder.path().join("data")).unwrap();
        assert_eq!(read(&directory), LastHeard::default(), "there is none yet");
        directory.write(LAST_HEARD_FILE, b"no gzip").unwrap();
        let keep = directory.clone();
        let router = Router::new(RouterConfig {
            last_heard: read(&directory),
            keep_last_heard: Some(Box::new(move |text| write(&keep, text))),
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
