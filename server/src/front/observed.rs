//! The records of a request besides the audit log: the line in the access log, and the trace spans.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, Response};
use tributary_records::access_log::{AccessLog, AccessRecord};
use tributary_records::traces::{TracedRequest, Tracer};
use tributary_router::{RequestArrival, User};

use crate::handler::Body;

/// The access log and the tracer, if configured.
#[derive(Clone, Default)]
pub struct Observers {
    /// The access log, which writes a line for each request.
    pub access_log: Option<Arc<AccessLog>>,
    /// The tracer, which records the spans of sampled requests.
    pub tracer: Option<Arc<Tracer>>,
}

#[derive(Default)]
pub(crate) struct RequestRecords {
    access_record: Option<Box<AccessRecord>>,
    traced: Option<Box<TracedRequest>>,
}

impl Observers {
    /// Starts the records of a new request. `peer` is the client's address.
    pub(crate) fn begin<B>(&self, request: &Request<B>, peer: SocketAddr) -> RequestRecords {
        RequestRecords {
            access_record: self.access_log.as_ref().map(|log| log.begin(request, peer)),
            traced: self.tracer.as_ref().and_then(|tracer| tracer.begin(request)),
        }
    }
}

impl RequestRecords {
    /// Records the host, the path, and the audit ID of an audited request.
    pub(crate) fn record_target(&mut self, arrival: &RequestArrival) {
        if let Some(traced) = &mut self.traced {
            traced.record_target(arrival);
        }
        if let Some(access_record) = &mut self.access_record {
            access_record.record_target(arrival);
        }
    }

    /// Records the authenticated user. The user determines whether the request is traced.
    pub(crate) fn set_user(&mut self, user: &User) {
        if let Some(access_record) = &mut self.access_record {
            access_record.set_user(user);
        }
        self.traced = self.traced.take().and_then(|traced| traced.set_user(user));
    }

    /// Records the status of the answer in the access log and the trace.
    pub(crate) fn finish(self, response: Response<Body>) -> Response<Body> {
        if let Some(traced) = self.traced {
            traced.finish(&response);
        }
        match self.access_record {
            Some(access_record) => access_record.finish(response),
            None => response,
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::Mount;
    use tributary_records::access_log::AccessLogSettings;
    use tributary_records::line_log::Rotation;

    use super::*;
    use crate::handler::empty;

    #[tokio::test]
    async fn access_log_line_contains_the_parsed_verb_resource_and_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let settings = AccessLogSettings { path: path.clone(), rotation: Rotation::default(), buffer_size: 10 };
        let access_log = AccessLog::open(settings).unwrap();
        let observers = Observers { access_log: Some(Arc::clone(&access_log)), tracer: None };
        let request = Request::get("/version").body(()).unwrap();
        let mut observed = observers.begin(&request, ([127, 0, 0, 1], 1).into());
        let read = http::Uri::from_static("/api/v1/namespaces/n/pods/p");
        observed.record_target(&RequestArrival::new(Mount::Merged, &http::Method::DELETE, &read));
        drop(observed.finish(Response::new(empty())));
        access_log.shut_down().await;
        let line: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!((&line["verb"], &line["resource"], &line["name"]), (&"delete".into(), &"pods".into(), &"p".into()));
    }
}
