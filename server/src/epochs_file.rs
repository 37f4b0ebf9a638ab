//! The lists of clusters that compact resourceVersions refer to, kept in the data directory from one run to the next.

use tributary_merge::Epochs;

use crate::data_directory::{DataDirectory, kept};

/// Where the lists of clusters that compact resourceVersions refer to are kept.
pub(crate) const EPOCHS_FILE: &str = "epochs.json";

/// What an earlier run kept. Without it old compact versions are 410, which clients survive: no reason not to start.
pub(crate) fn read(directory: &DataDirectory) -> Epochs {
    kept(
        directory,
        EPOCHS_FILE,
        "the kept lists of clusters cannot be read; older compact resourceVersions are answered 410",
        |bytes| Ok(serde_json::from_slice(bytes)?),
    )
}

/// Keeps them for later runs. Where that fails those will answer 410, so it is logged and served on.
pub(crate) fn write(directory: &DataDirectory, epochs: &Epochs) {
    let bytes = serde_json::to_vec(epochs).unwrap_or_default();
    if let Err(error) = directory.write(EPOCHS_FILE, &bytes) {
        let error = tributary_apimachinery::explain(&error);
        tracing::warn!(
            error,
            "the list of clusters was not kept; compact resourceVersions will be answered 410 after a restart"
        );
    }
}
