//! Continue token of a list that is forwarded to the clusters (live list).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterName;
use tributary_merge::{CompositeResourceVersion, Epochs};

use tributary_answers::refusal::VersionRefusal;

/// Start of the next page, encoded as unpadded base64url of JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LiveContinueToken {
    /// Cluster of the next objects.
    pub(super) cluster: String,
    /// Continue token that the cluster has issued; `None` if the next page begins at the start of the cluster's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    /// Versions of the clusters on earlier pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
    /// Number of clusters on the previous page, which determines the number of parallel requests for the next page.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) members: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl LiveContinueToken {
    /// Decodes a token.
    ///
    /// # Errors
    /// 410 for a token of another kind, for example of a list from memory. Clients then list again.
    pub(super) fn decode(text: &str) -> Result<Self, VersionRefusal> {
        let expired = || VersionRefusal::ExpiredToken { fresh: None };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| expired())?;
        serde_json::from_slice(&bytes).map_err(|_| expired())
    }

    /// Decodes the versions of the clusters on earlier pages; `None` if no earlier page has completed a cluster. The
    /// version of the merged list contains these versions, so the function accepts only clusters that earlier pages can
    /// contain.
    ///
    /// # Errors
    /// 410 for a text that is no version, and for a version with a cluster after the token's cluster or outside of the
    /// list.
    pub(super) fn shown(
        &self,
        epochs: &Epochs,
        is_listed: impl Fn(&ClusterName) -> bool,
    ) -> Result<Option<CompositeResourceVersion>, VersionRefusal> {
        let Some(text) = &self.version else { return Ok(None) };
        let version = CompositeResourceVersion::decode(text, epochs).ok();
        let is_shown = |name: &ClusterName| name.as_str() <= self.cluster.as_str() && is_listed(name);
        let version = version.filter(|version| version.iter().all(|(name, _)| is_shown(name)));
        version.map(Some).ok_or(VersionRefusal::ExpiredToken { fresh: None })
    }

    pub(super) fn encode(&self, version: &str) -> String {
        let version = (!version.is_empty()).then(|| version.to_owned());
        URL_SAFE_NO_PAD.encode(serde_json::to_vec(&Self { version, ..self.clone() }).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_list_continue_token_is_decoded_as_it_was_encoded() {
        let token = LiveContinueToken { cluster: "b".into(), token: Some("x".into()), version: None, members: 3 };
        let back = LiveContinueToken::decode(&token.encode("v")).unwrap();
        assert_eq!(back, LiveContinueToken { version: Some("v".into()), ..token });
        for garbage in ["", "?", "e30", "bm90aGluZw"] {
            let refusal = LiveContinueToken::decode(garbage).unwrap_err();
            assert!(matches!(refusal, VersionRefusal::ExpiredToken { fresh: None }), "{garbage}");
        }
    }
}
