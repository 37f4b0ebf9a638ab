//! Decodes the objects of a list, and the metadata that each kind has.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use tributary_apimachinery::Object;

use crate::SourceRefusal;

/// Maximum size of an object in bytes. A Secret with a bundle of a hundred certificate authorities is smaller than 512
/// KiB.
const OBJECT_BYTES_MAX: usize = 512 << 10;

/// The metadata of a foreign object. Fields that are missing or null are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ObjectMetadata {
    #[serde(deserialize_with = "or_null")]
    pub(crate) name: String,
    #[serde(deserialize_with = "or_null")]
    pub(crate) namespace: String,
    #[serde(deserialize_with = "or_null")]
    pub(crate) uid: String,
    #[serde(deserialize_with = "or_null")]
    pub(crate) creation_timestamp: String,
    #[serde(deserialize_with = "or_null")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_null")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_null")]
    pub(crate) owner_references: Vec<OwnerReference>,
}

/// A reference from a Secret to its owner.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// Deserializes `null` as the default value, as Go does.
pub(crate) fn or_null<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Decodes a foreign object. `label` is its kind and name, for messages.
///
/// # Errors
/// The object is too large, or a field has a wrong type.
pub(crate) fn decode_object<T: DeserializeOwned>(object: &Object, label: &str) -> Result<T, SourceRefusal> {
    if object.json().len() > OBJECT_BYTES_MAX {
        let message = format!(
            "{label} has more than {} KiB. Remove data that the cluster does not need.",
            OBJECT_BYTES_MAX >> 10
        );
        return Err(SourceRefusal::new("TooLarge", message));
    }
    serde_json::from_slice(object.json()).map_err(|_| SourceRefusal::unreadable(label))
}
