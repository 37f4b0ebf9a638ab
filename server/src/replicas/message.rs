//! What replicas say to each other: JSON, in questions and answers alike.

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use serde::{Deserialize, Serialize};
use tributary_apimachinery::ClusterName;
use tributary_flow_control::ReplicaId;
use tributary_router::LimitShare;

/// Where questions are posted.
pub(super) const PATH: &str = "/flow-control/shares";
/// How many limits one message is about at most; those of further ones are asked for another time.
const SHARES_MAX: usize = 4_096;
/// The longest message, in bytes: as many shares, with names as long as names may be.
const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// A question, of how much is wanted; or its answer, of how much is lent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    /// Who says it.
    replica: u64,
    shares: Vec<Share>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Share {
    /// Missing for the merged view.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    schema: String,
    limit: u32,
    amount: u32,
}

impl Message {
    pub(super) fn new(own: ReplicaId, shares: &[LimitShare]) -> Self {
        Self { replica: own.0, shares: shares.iter().take(SHARES_MAX).map(Share::from).collect() }
    }

    /// Who says it.
    pub(super) fn replica(&self) -> ReplicaId {
        ReplicaId(self.replica)
    }

    /// What it says, but for what can be none.
    pub(super) fn shares(&self) -> Vec<LimitShare> {
        self.shares.iter().filter_map(Share::limit_share).collect()
    }

    /// As it is sent.
    pub(super) fn text(&self) -> Result<Vec<u8>, String> {
        serde_json::to_vec(self).map_err(|error| error.to_string())
    }

    /// Reads one that is sent. Cancel: safe.
    pub(super) async fn read<B>(body: B) -> Result<Self, String>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let text = Limited::new(body, MESSAGE_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
        serde_json::from_slice(&text.to_bytes()).map_err(|error| error.to_string())
    }
}

impl From<&LimitShare> for Share {
    fn from(share: &LimitShare) -> Self {
        let LimitShare { cluster, schema, limit, amount } = share;
        let cluster = cluster.as_ref().map(|cluster| cluster.as_str().to_owned());
        Self { cluster, schema: schema.to_string(), limit: *limit, amount: *amount }
    }
}

impl Share {
    fn limit_share(&self) -> Option<LimitShare> {
        let cluster = self.cluster.as_deref().map(ClusterName::new).transpose().ok()?;
        Some(LimitShare { cluster, schema: self.schema.as_str().into(), limit: self.limit, amount: self.amount })
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn what_is_said_is_read_and_what_is_too_long_is_not() {
        let shares = [None, Some("eu")].map(|cluster| LimitShare {
            cluster: cluster.map(|name| name.parse().unwrap()),
            schema: "tenants".into(),
            limit: 10,
            amount: 5,
        });
        let text = Message::new(ReplicaId(u64::MAX), &shares).text().unwrap();
        let read = Message::read(Full::new(Bytes::from(text))).await.unwrap();
        assert_eq!((read.replica(), read.shares()), (ReplicaId(u64::MAX), shares.to_vec()));
        let wrong = r#"{"replica": 1, "shares": [{"cluster": "A_B", "schema": "a", "limit": 1, "amount": 1}]}"#;
        assert_eq!(Message::read(Full::new(Bytes::from(wrong))).await.unwrap().shares(), []);
        let long = Bytes::from(vec![b' '; MESSAGE_BYTES_MAX + 1]);
        assert!(Message::read(Full::new(long)).await.is_err());
        let many = vec![shares[0].clone(); SHARES_MAX + 1];
        assert_eq!(Message::new(ReplicaId(1), &many).shares().len(), SHARES_MAX);
    }
}
