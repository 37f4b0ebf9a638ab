//! Tests of the identity: no header of a client can change the user that a member sees.

use std::sync::Arc;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::Value;
use tributary_apimachinery::Status;
use tributary_simulator::Authorizer;

use super::table::{MEMBERS, MERGED_VIEWS};
use crate::membership::members::{SHOP, fixture};

/// Headers by which a front proxy or an administrator names a user. The client is neither.
const FORGED: &[(&str, &str)] = &[
    ("x-remote-user", "root"),
    ("x-remote-group", "system:masters"),
    ("x-remote-uid", "0"),
    ("x-remote-extra-scopes", "all"),
    ("X-Remote-Extra-%41", "all"),
];

/// Records the headers of each request that changes an object.
#[derive(Default)]
struct Recorder(Mutex<Vec<HeaderMap>>);

impl Authorizer for Recorder {
    fn refusal(&self, headers: &HeaderMap, method: &Method, _target: &str) -> Option<Status> {
        if method == Method::PATCH {
            self.0.lock().push(headers.clone());
        }
        None
    }

    fn allows(&self, _headers: &HeaderMap, _attributes: &Value) -> bool {
        true
    }
}

#[tokio::test]
async fn forged_headers_reach_no_member_at_any_door() {
    let (fixture, _rbac) = fixture(["a", "b"]).await;
    let recorder = Arc::new(Recorder::default());
    fixture.member("a").control().authorize(Some(Arc::clone(&recorder) as Arc<dyn Authorizer>));
    let merge = [("content-type", "application/merge-patch+json")];
    for row in MERGED_VIEWS.iter().chain(MEMBERS) {
        let ann = row.enter(fixture.user("ann", &["dev".to_owned()]), &fixture);
        let path = format!("{SHOP}/of-a");
        let headers = [&merge[..], FORGED].concat();
        ann.send("PATCH", &path, &headers, r#"{"data":{"v":"2"}}"#).await.ok();
        let came = std::mem::take(&mut *recorder.0.lock());
        assert_eq!(came.len(), 1, "{row:?}");
        let names = came[0].keys().map(|name| name.as_str());
        let identity: Vec<_> =
            names.filter(|name| name.starts_with("x-remote") || name.starts_with("impersonate")).collect();
        assert_eq!(
            (&came[0]["impersonate-user"], identity.len()),
            (&"ann".parse().unwrap(), 2),
            "{row:?}: {identity:?}"
        );
        assert_eq!(came[0].get_all("impersonate-group").iter().collect::<Vec<_>>(), ["dev"], "{row:?}");

        // Ann may impersonate nobody.
        for forged in [&[("impersonate-user", "root")][..], &[("impersonate-group", "system:masters")]] {
            let headers = [&merge[..], forged].concat();
            let answer = ann.send("PATCH", &path, &headers, r#"{"data":{"v":"3"}}"#).await;
            assert!(matches!(answer.code, 400 | 403), "{row:?}: {answer:?}");
            assert!(recorder.0.lock().is_empty(), "{row:?}");
        }
    }
}

/// Memory answers from the rights of the caller, whatever the headers claim.
#[tokio::test]
async fn forged_headers_show_no_further_object_at_any_door() {
    let (fixture, _rbac) = fixture(["a", "b", "c"]).await;
    for row in MERGED_VIEWS {
        let ann = row.enter(fixture.user("ann", &["dev".to_owned()]), &fixture);
        let plain = ann.send("GET", SHOP, &[], "").await.ok();
        let forged = ann.send("GET", SHOP, FORGED, "").await.ok();
        assert_eq!(plain, forged, "{row:?}");
        assert_eq!(plain["items"].as_array().unwrap().len(), 2, "{row:?}: {plain}");
    }
}
